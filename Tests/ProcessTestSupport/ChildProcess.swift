import Foundation
public import Glibc
import Synchronization

/// A program started by a test. Its two outputs are collected while it runs.
public final class ChildProcess: Sendable {
    public enum End: Equatable, Sendable {
        case exit(Int32)
        case signal(Int32)
    }

    public let identifier: pid_t
    public let output: CollectedLines
    public let errors: CollectedLines
    /// The descriptor that writes to the standard input.
    private let input: Mutex<Int32?>
    private let end = Mutex<End?>(nil)

    /// - Parameters:
    ///   - environment: the whole environment of the program, except for `PATH` and the options of sanitizers.
    ///   - input: the file to read as standard input; `nil` for a pipe that is open until ``closeInput()``, or until
    ///     this process ends.
    public init(
        _ path: String, _ arguments: [String], environment: [String: String] = [:], input: String? = "/dev/null"
    ) throws {
        let inputPipe = input == nil ? try Pipe() : nil
        let outputPipe = try Pipe()
        let errorPipe = try Pipe()
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let inputPipe {
            posix_spawn_file_actions_adddup2(&actions, inputPipe.reading, STDIN_FILENO)
        } else if let input {
            posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input, O_RDONLY, 0)
        }
        posix_spawn_file_actions_adddup2(&actions, outputPipe.writing, STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, errorPipe.writing, STDERR_FILENO)
        // Libraries in this process have descriptors open that are not closed on exec.
        for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            guard let descriptor = Int32(name), descriptor > STDERR_FILENO else { continue }
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }

        var variables: [String: String] = [:]
        for name: String in ["PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LD_PRELOAD"] {
            variables[name] = getenv(name).map { String(cString: $0) }
        }
        // Preloaded libraries add up: a sanitizer's must not be replaced by the test's.
        variables.merge(environment.filter { $0.key != "LD_PRELOAD" }) { _, given in given }
        if let library = environment["LD_PRELOAD"] {
            variables["LD_PRELOAD"] = variables["LD_PRELOAD"].map { "\($0):\(library)" } ?? library
        }
        var identifier: pid_t = 0
        let code = withCStrings([path] + arguments) { arguments in
            withCStrings(variables.map { "\($0.key)=\($0.value)" }) { variables in
                posix_spawn(&identifier, path, &actions, nil, arguments, variables)
            }
        }
        inputPipe?.closeReading()
        outputPipe.closeWriting()
        errorPipe.closeWriting()
        self.input = Mutex(inputPipe?.writing)
        output = CollectedLines(reading: outputPipe.reading)
        errors = CollectedLines(reading: errorPipe.reading)
        guard code == 0 else { throw TestFailure("\(path) cannot be started: \(String(cString: strerror(code)))") }
        self.identifier = identifier
    }

    /// Writes to the standard input, which must be an open pipe, and blocks until all is written.
    public func write(_ text: String) throws {
        try input.withLock { input in
            guard let input else { throw TestFailure("the standard input is not open") }
            try FileHandle(fileDescriptor: input).write(contentsOf: Data(text.utf8))
        }
    }

    /// Ends the standard input, if it is an open pipe.
    public func closeInput() {
        input.withLock { input in
            if let descriptor = input.take() { close(descriptor) }
        }
    }

    /// Sends a signal, unless the process is known to have ended.
    public func send(_ signal: Int32) {
        end.withLock { end in
            if end == nil { kill(identifier, signal) }
        }
    }

    /// Blocks until the process has ended and all of its output is collected.
    @discardableResult
    public func wait() -> End {
        output.waitForEnd()
        errors.waitForEnd()
        return end.withLock { end in
            if let end { return end }
            var status: Int32 = 0
            while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
            let signal = status & 0x7F
            let ended: End = signal == 0 ? .exit((status >> 8) & 0xFF) : .signal(signal)
            end = ended
            return ended
        }
    }
}

/// A stream from a child. It is a socket pair, because Swift cannot create a pipe that is closed on exec in one call,
/// and another test may start a child at any moment.
private struct Pipe {
    let reading: Int32
    let writing: Int32

    init() throws {
        var ends: [Int32] = [0, 0]
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else {
            throw TestFailure("socketpair: \(String(cString: strerror(errno)))")
        }
        (reading, writing) = (ends[0], ends[1])
    }

    func closeReading() {
        close(reading)
    }

    func closeWriting() {
        close(writing)
    }
}

/// Calls a closure with texts as `exec` takes them: an array that ends with a null pointer.
private func withCStrings<Result>(
    _ texts: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
) -> Result {
    var pointers = texts.map { strdup($0) }
    pointers.append(nil)
    defer { for pointer in pointers { free(pointer) } }
    return body(pointers)
}

/// Lines from a descriptor, read by a thread of their own so that the writer never waits.
public final class CollectedLines: @unchecked Sendable {
    // Safe: `lines` and `hasEnded` are only used with the condition's lock held.
    private var lines: [String] = []
    private var hasEnded = false
    private let condition = NSCondition()

    /// - Parameter descriptor: closed at its end.
    init(reading descriptor: Int32) {
        Thread.detachNewThread { [self] in collect(descriptor) }
    }

    public var all: [String] {
        condition.withLock { lines }
    }

    public var text: String {
        all.joined(separator: "\n")
    }

    /// Blocks until a line satisfies the predicate. Returns `nil` at the end of the stream or after a minute.
    public func first(where matches: (String) -> Bool) -> String? {
        condition.withLock {
            var seen = 0
            // A wait has a deadline of the wall clock, which may be set; so there are many short ones.
            let deadline = ContinuousClock.now + .seconds(60)
            while true {
                if let line = lines[seen...].first(where: matches) { return line }
                seen = lines.count
                if hasEnded || .now > deadline { return nil }
                _ = condition.wait(until: Date(timeIntervalSinceNow: 1))
            }
        }
    }

    /// Blocks until there are more lines than `index`, and returns the line with this index. Returns `nil` if the stream
    /// ends before.
    public func line(_ index: Int) -> String? {
        condition.withLock {
            while lines.count <= index, !hasEnded { condition.wait() }
            return lines.indices.contains(index) ? lines[index] : nil
        }
    }

    func waitForEnd() {
        condition.withLock {
            while !hasEnded { condition.wait() }
        }
    }

    private func collect(_ descriptor: Int32) {
        var rest: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            rest += buffer[..<count]
            var pieces = rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map(Array.init)
            rest = pieces.popLast() ?? []
            add(pieces)
        }
        close(descriptor)
        if !rest.isEmpty { add([rest]) }
        condition.withLock {
            hasEnded = true
            condition.broadcast()
        }
    }

    private func add(_ pieces: [[UInt8]]) {
        guard !pieces.isEmpty else { return }
        condition.withLock {
            lines += pieces.map { String(decoding: $0, as: UTF8.self) }
            condition.broadcast()
        }
    }
}

/// Why a test cannot continue.
public struct TestFailure: Error, CustomStringConvertible {
    public let description: String

    public init(_ description: String) {
        self.description = description
    }
}
