import Foundation
import Glibc
import Synchronization

/// Another program, started by a test. What it writes to its two outputs is collected while it runs.
final class ChildProcess: Sendable {
    enum End: Equatable {
        case exit(Int32)
        case signal(Int32)
    }

    let identifier: pid_t
    let output: CollectedLines
    let errors: CollectedLines
    private let end = Mutex<End?>(nil)

    /// - Parameters:
    ///   - environment: all that the program sees of an environment, beside `PATH` and the options of sanitizers.
    ///   - input: what its standard input says.
    init(
        _ path: String, _ arguments: [String], environment: [String: String] = [:], input: String = "/dev/null"
    ) throws {
        let outputPipe = try Pipe()
        let errorPipe = try Pipe()
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input, O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, outputPipe.writing, STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, errorPipe.writing, STDERR_FILENO)
        // Not all that libraries have open in this process is closed on exec by itself.
        for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            guard let descriptor = Int32(name), descriptor > STDERR_FILENO else { continue }
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }

        var variables: [String: String] = [:]
        for name: String in ["PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LD_PRELOAD"] {
            variables[name] = getenv(name).map { String(cString: $0) }
        }
        // Libraries that are loaded before others are given, one does not take the place of another.
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
        outputPipe.closeWriting()
        errorPipe.closeWriting()
        output = CollectedLines(reading: outputPipe.reading)
        errors = CollectedLines(reading: errorPipe.reading)
        guard code == 0 else { throw TestFailure("\(path) cannot be started: \(String(cString: strerror(code)))") }
        self.identifier = identifier
    }

    /// Sends a signal, unless the process is known to have ended.
    func send(_ signal: Int32) {
        end.withLock { end in
            if end == nil { kill(identifier, signal) }
        }
    }

    /// Blocks until the process has ended and all of its output is collected.
    func wait() -> End {
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

/// A stream that a child does not inherit but where it is told to. A pair of sockets, as these can be made so in one
/// call, which pipes cannot from Swift: another test may start a child at any moment.
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

    func closeWriting() {
        close(writing)
    }
}

/// Lends the texts as `exec` takes them: an array that ends with a null pointer.
private func withCStrings<Result>(
    _ texts: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
) -> Result {
    var pointers = texts.map { strdup($0) }
    pointers.append(nil)
    defer { for pointer in pointers { free(pointer) } }
    return body(pointers)
}
