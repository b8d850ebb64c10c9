import Foundation
import Glibc

/// PostgreSQL servers that a test ends, pauses and promotes; see the script `postgresql-hosts`. All end with the last
/// reference, or with the process.
public final class PostgreSQLHosts: @unchecked Sendable {
    // Safe: one thread at a time uses it.
    public let directory: String
    private let script = Process()
    private let input = Pipe()
    private let output = Pipe()

    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    public init() throws {
        directory = "/tmp/holdfast-hosts-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        script.executableURL = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "postgresql-hosts")
        script.arguments = [directory]
        script.standardInput = input
        script.standardOutput = output
        // Other children must not keep it open.
        _ = fcntl(input.fileHandleForWriting.fileDescriptor, F_SETFD, FD_CLOEXEC)
        try script.run()
    }

    deinit {
        try? input.fileHandleForWriting.close()
        script.waitUntilExit()
    }

    /// Executes a command of the script and blocks until it is done.
    public func run(_ words: String...) throws {
        let command = words.joined(separator: " ")
        try input.fileHandleForWriting.write(contentsOf: Data((command + "\n").utf8))
        let answer = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
        guard answer == "done\n" else {
            let log = (try? String(contentsOfFile: "\(directory)/log", encoding: .utf8)) ?? ""
            throw Failure(description: "\(command): \(answer)\(log.suffix(2_000))")
        }
    }
}
