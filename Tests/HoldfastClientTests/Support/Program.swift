import Foundation

/// A built program, run as a process; killed when it is released.
final class Program: @unchecked Sendable {
    // Safe: the process is configured before it is shared, and started, signalled and waited for only.
    private let process = Process()
    private let lines = Lines()

    /// - Parameters:
    ///   - environment: what it has beside the environment of the tests.
    ///   - output: which of its outputs is read.
    init(_ name: String, _ arguments: [String], environment: [String: String] = [:], reading output: Output) throws {
        process.executableURL = Self.directory.appendingPathComponent(name)
        process.arguments = arguments
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let pipe = Pipe()
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = output == .standard ? pipe : FileHandle.nullDevice
        process.standardError = output == .errors ? pipe : FileHandle.nullDevice
        try process.run()
        let (lines, handle) = (lines, pipe.fileHandleForReading)
        Thread.detachNewThread {
            while case let data = handle.availableData, !data.isEmpty { lines.add(data) }
            lines.end()
        }
    }

    enum Output {
        case standard, errors
    }

    deinit {
        kill()
    }

    /// Where the package's programs are built.
    static let directory: URL = {
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        return URL(fileURLWithPath: own).deletingLastPathComponent()
    }()

    /// Blocks until the program has written a matching line, or has ended.
    func line(where fits: (String) -> Bool) -> String? {
        lines.first(where: fits)
    }

    /// All whole lines so far; after ``kill()`` all there are.
    var output: [String] { lines.all }

    /// Kills the process (`SIGKILL`) and blocks until it is gone.
    func kill() {
        if process.isRunning { Foundation.kill(process.processIdentifier, SIGKILL) }
        process.waitUntilExit()
        lines.waitForEnd()
    }

    /// Blocks until it has ended by itself.
    ///
    /// - Returns: its exit status.
    func wait() -> Int32 {
        process.waitUntilExit()
        lines.waitForEnd()
        return process.terminationStatus
    }
}

/// What a program writes, line by line.
private final class Lines: @unchecked Sendable {
    // Safe: all is used with the condition's lock held.
    private var text = Data()
    private var hasEnded = false
    private let condition = NSCondition()

    var all: [String] {
        condition.withLock { whole }
    }

    private var whole: [String] {
        let lines = String(decoding: text, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
        return lines.dropLast().map(String.init)
    }

    func add(_ data: Data) {
        condition.withLock {
            text += data
            condition.broadcast()
        }
    }

    func end() {
        condition.withLock {
            hasEnded = true
            condition.broadcast()
        }
    }

    func waitForEnd() {
        condition.withLock {
            while !hasEnded { condition.wait() }
        }
    }

    func first(where fits: (String) -> Bool) -> String? {
        condition.withLock {
            while true {
                if let line = whole.first(where: fits) { return line }
                if hasEnded { return nil }
                condition.wait()
            }
        }
    }
}
