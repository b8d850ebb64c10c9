import ArgumentParser
import Dispatch
import FoundationEssentials
import Glibc
import StorageSQLite

/// Makes a consistent copy of the database while servers use it.
struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Copies the database to a new file while servers use it.")

    @OptionGroup var database: DatabaseOptions

    @Argument(help: "The file of the copy, which must not exist yet.")
    var file: String

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment, instead: "pg_dump")
        let progress = CopyProgress(of: path, to: DatabaseMaintenance.partialName(of: file))
        defer { progress.finish() }
        try DatabaseMaintenance.backUp(path: path, to: file)
        print("copied \(path) to \(file)")
    }
}

/// Creates the database, or migrates it to this release's version. `serve` does the same when it starts.
struct MigrateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate", abstract: "Creates the database, or migrates it to this release's version.")

    @OptionGroup var database: DatabaseOptions

    func run() throws {
        let location = try database.location(environment: ProcessInfo.processInfo.environment)
        let versions = try StoreFactory.migrate(location)
        print(
            versions.from == versions.to
                ? "\(location) has version \(versions.to) already"
                : "\(location) was migrated from version \(versions.from) to \(versions.to)")
    }
}

/// Shows the progress of a copy on standard error once a second, if that is a terminal.
final class CopyProgress {
    private let timer: (any DispatchSourceTimer)?

    init(of source: String, to copy: String) {
        guard isatty(STDERR_FILENO) == 1 else {
            timer = nil
            return
        }
        let timer = DispatchSource.makeTimerSource()
        timer.schedule(deadline: .now() + 1, repeating: 1)
        timer.setEventHandler {
            // The copy has no free pages, so it can be smaller than the source.
            let text = "\(Self.mebibytes(copy)) of at most \(Self.mebibytes(source)) MiB\r"
            OpenFile.printError(text)
        }
        timer.resume()
        self.timer = timer
    }

    func finish() {
        timer?.cancel()
    }

    private static func mebibytes(_ path: String) -> Int {
        var status = stat()
        return stat(path, &status) == 0 ? Int(status.st_size) >> 20 : 0
    }
}
