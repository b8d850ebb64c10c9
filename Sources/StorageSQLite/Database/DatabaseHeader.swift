/// What the first 100 bytes of a database file say (https://www.sqlite.org/fileformat.html#the_database_header), read
/// without any effect on the file or beside it.
struct DatabaseHeader {
    /// `PRAGMA application_id`
    let applicationID: Int64
    /// `PRAGMA user_version`
    let version: Int64

    private static let length = 100
    private static let magic = Array("SQLite format 3\0".utf8)

    /// - Returns: `nil` when the file is no database.
    init?(path: String) throws(SQLiteError) {
        let connection = try Connection(path: path, access: .read, lockTimeout: 0)
        guard let bytes = connection.firstBytes(Self.length), bytes.starts(with: Self.magic) else { return nil }
        func number(at offset: Int) -> Int64 {
            Int64(Int32(bitPattern: bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }))
        }
        version = number(at: 60)
        applicationID = number(at: 68)
    }
}
