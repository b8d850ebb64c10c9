/// One step of the database's schema, as it lies in the numbered SQL files beside this one.
public struct Migration: Sendable {
    /// 1 for the first; without gaps.
    public let number: Int
    /// Statements that take a database from the step before to this one.
    public let sql: String

    public init(number: Int, sql: String) {
        self.number = number
        self.sql = sql
    }

    private init(number: Int, file: [UInt8]) {
        self.init(number: number, sql: String(decoding: file, as: UTF8.self))
    }

    /// All steps in order. (The build replaces the first digit of a file's name by an underscore.)
    public static let all = [
        Migration(number: 1, file: PackageResources._001_profiles_sql)
    ]
}
