import ArgumentParser
import FoundationEssentials
import HoldfastCore

/// Commands for datafiles that need no server.
struct DatafileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "datafile", abstract: "Checks datafiles.", subcommands: [DatafileCheckCommand.self])
}

/// Checks whether the server would accept a datafile, and prints all its faults.
struct DatafileCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Checks whether the server would accept a datafile; exit status 1 if not.")

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
            for warning in summary.warnings { OpenFile.printError("warning: \(warning)\n") }
        } catch {
            OpenFile.printError("\(file) is not usable:\n\(error)\n")
            throw ExitCode(1)
        }
    }
}
