import ArgumentParser
import Foundation
import HoldfastCore

/// What can be done with a datafile without a server.
struct DatafileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "datafile", abstract: "Checks datafiles.", subcommands: [DatafileCheckCommand.self])
}

/// Says whether the server would take a datafile, and if not, everything that is wrong with it.
struct DatafileCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Says whether the server would take a datafile; exit status 1 if not.")

    @Argument(help: "The datafile.")
    var file: String

    func run() throws {
        let content = try DatafileSource.read(URL(fileURLWithPath: file))
        do throws(DatafileLoadError) {
            let summary = try DatafileSummary(checking: content)
            print(
                "\(file) is usable: revision \(summary.revision), \(summary.experiments) experiments and rules, "
                    + "\(summary.flags) flags, \(summary.audiences) audiences"
                    + (summary.sdkKey.map { ", SDK key \($0)" } ?? ""))
        } catch {
            FileHandle.standardError.write(Data("\(file) is not usable:\n\(error)\n".utf8))
            throw ExitCode(1)
        }
    }
}
