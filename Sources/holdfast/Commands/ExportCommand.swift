import ArgumentParser
import struct Bucketing.Identifier
import FoundationEssentials
import Glibc
import HoldfastCore
import Storage
import StorageSQLite

/// Writes all profiles as NDJSON to standard output.
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes all profiles to standard output, one JSON object per line, while servers use the database.")

    @OptionGroup var database: DatabaseOptions

    @Flag(help: "Include the source and the times of each assignment.")
    var detail = false

    private static let page = 1_000

    func run() throws {
        let location = try database.location(environment: ProcessInfo.processInfo.environment)
        if !location.isPostgreSQL {
            let path = location.text
            guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no database \(path)") }
            try DatabaseMaintenance.expectCurrentVersion(path: path)
        }
        let store = try StoreFactory.open(location, isReadOnly: true)
        defer { store.close() }
        let session = try BackgroundSession(store, label: "export")
        defer { session.close() }
        let progress = Progress("exported")
        var last: Identifier?
        repeat {
            let page: ProfilePage
            do throws(StorageError) {
                page = try session.wait { [last] session, done in
                    session.read(.profiles(after: last, limit: Self.page), done)
                }
            } catch {
                throw Failure("the export \(last.map { "stopped after '\($0)'" } ?? "cannot begin"): \(error)")
            }
            let lines = page.profiles.flatMap { ProfileLine.encode($0.userID, $0.profile, detail: detail) }
            do {
                try OpenFile.standardOutput.write(lines)
            } catch {
                throw Failure("standard output cannot be written: \(error)")
            }
            progress.add(page.profiles.count)
            last = page.end
        } while last != nil
        progress.finish()
    }
}

/// Shows a count on standard error while a long command runs, if that is a terminal.
final class Progress {
    private let verb: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private var count = 0
    private var shown = 0

    init(_ verb: String) {
        self.verb = verb
    }

    func add(_ number: Int) {
        count += number
        guard isShown, count - shown >= 10_000 else { return }
        shown = count
        show(end: "\r")
    }

    func finish() {
        if isShown, count > 0 { show(end: "\n") }
    }

    private func show(end: String) {
        OpenFile.printError("\(verb) \(count) profiles\(end)")
    }
}
