import ArgumentParser
import HoldfastCore
import struct Bucketing.Identifier
import Foundation
import Storage
import StorageSQLite

/// Writes all profiles as NDJSON to standard output.
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes all profiles to standard output, one JSON object a line, while servers use the database.")

    @OptionGroup var database: DatabaseOptions

    @Flag(help: "Write with each assignment where it came from.")
    var detail = false

    private static let page = 1_000

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment)
        guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no database \(path)") }
        try DatabaseMaintenance.expectCurrentVersion(path: path)
        let store = try StoreFactory.open(path)
        defer { store.close() }
        let reader = try store.makeReader()
        defer { reader.close() }
        let progress = Progress("exported")
        var last: Identifier?
        repeat {
            var answer: Result<ProfilePage, StorageError>?
            reader.profiles(after: last, limit: Self.page) { answer = $0 }
            let page: ProfilePage
            switch answer {
            case .success(let read): page = read
            case .failure(let error): throw Failure("the export \(last.map { "ends after '\($0)'" } ?? "cannot begin"): \(error)")
            case nil: return
            }
            let lines = page.profiles.flatMap { ProfileLine.encode($0.userID, $0.profile, detail: detail) }
            do {
                try FileHandle.standardOutput.write(contentsOf: Data(lines))
            } catch {
                throw Failure("standard output cannot be written: \(error.localizedDescription)")
            }
            progress.add(page.profiles.count)
            last = page.end
        } while last != nil
        progress.finish()
    }
}
