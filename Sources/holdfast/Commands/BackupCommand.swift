import ArgumentParser
import Foundation
import StorageSQLite

/// Copies the database as it is at one moment, while servers use it.
struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Copies the database to a new file while servers use it.")

    @OptionGroup var database: DatabaseOptions

    @Argument(help: "The copy; there must be no file of this name.")
    var file: String

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment)
        let progress = CopyProgress(of: path, to: DatabaseMaintenance.partialName(of: file))
        defer { progress.finish() }
        try DatabaseMaintenance.backUp(path: path, to: file)
        print("copied \(path) to \(file)")
    }
}
