import ArgumentParser
import Foundation
import StorageSQLite

/// Makes the database, or brings it to this release's version. `serve` does the same when it starts.
struct MigrateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate", abstract: "Makes the database, or brings it to this release's version.")

    @OptionGroup var database: DatabaseOptions

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment)
        let versions = try DatabaseMaintenance.migrate(path: path)
        print(
            versions.from == versions.to
                ? "\(path) has version \(versions.to) already"
                : "\(path) was brought from version \(versions.from) to \(versions.to)")
    }
}
