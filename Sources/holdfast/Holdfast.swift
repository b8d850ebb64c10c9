import ArgumentParser

/// The program's entry. Each subcommand is a type of its own in `Commands/`.
@main
struct Holdfast: ParsableCommand {
    static let version = "0.1.0"

    static let configuration = CommandConfiguration(
        commandName: "holdfast",
        abstract: "Keeps every user in the experiment variation they were first given.",
        discussion: """
            Every option can also be given as an environment variable: HOLDFAST_ and its name in capitals, \
            with '_' for '-'. The option goes before the variable.
            """,
        version: version,
        subcommands: [
            ServeCommand.self, MigrateCommand.self, ExportCommand.self, ImportCommand.self, BackupCommand.self,
            HealthCommand.self, DatafileCommand.self,
        ])
}
