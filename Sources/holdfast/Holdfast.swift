import ArgumentParser
import Glibc

/// The program's entry point. Each subcommand is a type of its own in `Commands/`.
@main
struct Holdfast: ParsableCommand {
    static let version = "0.1.0"

    static let configuration = CommandConfiguration(
        commandName: "holdfast",
        abstract: "Keeps every user in the experiment variation they were first given.",
        discussion: """
            Every option is also an environment variable: HOLDFAST_ and its name in capitals, with '_' for '-'. \
            The option takes precedence.
            """,
        version: version,
        subcommands: [
            ServeCommand.self, MigrateCommand.self, ExportCommand.self, ImportCommand.self, BackupCommand.self,
            RestoreCommand.self, CopyCommand.self, HealthCommand.self, DatafileCommand.self, ManualCommand.self,
            DemoCommand.self, PlanCommand.self, ApplyCommand.self, PullCommand.self, PromoteCommand.self,
            LintCommand.self, SchemaCommand.self, GenerateCommand.self, StaleCommand.self,
        ])

    /// Runs the command that the arguments name, and ends the process with its exit status.
    static func main() {
        openStandardDescriptors()
        do {
            let arguments = joiningNegativeNumbers(CommandLine.arguments.dropFirst())
            try ServeCommand.expectOwnWords(arguments)
            var command = try parseAsRoot(arguments)
            try command.run()
            // `exit` would let libraries free memory that other threads still use, such as OpenSSL while a thread opens
            // a connection to the database.
            fflush(nil)
            _exit(EXIT_SUCCESS)
        } catch let error as ConfigurationError {
            // Printed here, because ArgumentParser would exit with status 1.
            OpenFile.printError("Error: \(error.reason)\n")
            exit(withError: ExitCode.configuration)
        } catch  where exitCode(for: error).isSuccess && fullMessage(for: error).hasPrefix(ServeCommand.overview) {
            // `holdfast serve --help`, which ArgumentParser throws as an error.
            print(ServeCommand.grouped(help: fullMessage(for: error)))
        } catch {
            exit(withError: error)
        }
    }

    /// Opens `/dev/null` for each standard descriptor that the program was started without. Otherwise the next file or
    /// socket would get its number: log lines could be written into the database.
    private static func openStandardDescriptors() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            // The kernel chooses the lowest number that is free.
            guard open("/dev/null", O_RDWR) == descriptor else { _exit(ExitCode.failure.rawValue) }
        }
    }

    /// Joins a negative number to the option before it. Otherwise ArgumentParser would parse it as an option and report
    /// a missing value instead of one out of range.
    private static func joiningNegativeNumbers(_ arguments: some Sequence<String>) -> [String] {
        var joined: [String] = []
        for argument in arguments {
            if let option = joined.last, option.hasPrefix("--"), option.count > 2, !option.contains("="),
                argument.hasPrefix("-"), argument.dropFirst().first?.isNumber == true
            {
                joined[joined.count - 1] = "\(option)=\(argument)"
            } else {
                joined.append(argument)
            }
        }
        return joined
    }
}

/// The error of a command, as one line for its user.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description.split(whereSeparator: \.isNewline).joined(separator: " ")
    }
}

/// The error of a server that cannot start until its configuration is changed.
struct ConfigurationError: Error {
    let reason: any Error

    /// Reads a part of the configuration.
    ///
    /// - Throws: ``ConfigurationError`` for any error of `read`.
    static func wrapping<Value>(_ read: () throws -> Value) throws -> Value {
        do {
            return try read()
        } catch {
            throw ConfigurationError(reason: error)
        }
    }
}

extension ExitCode {
    /// `EX_CONFIG` of sysexits.h: a restart would not help. The systemd unit does not restart after this status.
    static let configuration = ExitCode(78)
}
