import Foundation
import Glibc
import ProcessTestSupport

/// PostgreSQL servers that a test ends, pauses and promotes; see the script `postgresql-hosts`. All end with the last
/// reference, or with the process.
public final class PostgreSQLHosts: @unchecked Sendable {
    // Safe: one thread at a time uses it.
    public let directory: String
    private let script: ChildProcess
    /// Number of commands so far; each has one line of output.
    private var commands = 0

    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    public init() throws {
        directory = "/tmp/holdfast-hosts-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        let path = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "postgresql-hosts").path
        script = try ChildProcess(path, [directory], input: nil)
    }

    deinit {
        script.closeInput()
        script.wait()
    }

    /// Executes a command of the script and blocks until it is done.
    public func run(_ words: String...) throws {
        let command = words.joined(separator: " ")
        try script.write(command + "\n")
        let response = script.output.line(commands)
        commands += 1
        guard response == "done" else {
            let log = (try? String(contentsOfFile: "\(directory)/log", encoding: .utf8)) ?? ""
            throw Failure(description: "\(command): \(response ?? "no response") \(log.suffix(2_000))")
        }
    }
}
