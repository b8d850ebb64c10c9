import Foundation
import ProcessTestSupport

/// A program of the package, run as a process; killed when it is released.
final class Program: Sendable {
    private let child: ChildProcess
    private let lines: CollectedLines

    /// - Parameters:
    ///   - environment: the environment of the program, beside `PATH`.
    ///   - output: which of its outputs is read.
    init(_ name: String, _ arguments: [String], environment: [String: String] = [:], reading output: Output) throws {
        child = try ChildProcess(Executable.built(name), arguments, environment: environment)
        lines = output == .standard ? child.output : child.errors
    }

    enum Output {
        case standard, errors
    }

    deinit {
        kill()
    }

    /// Returns when the program has written a matching line, or has ended, after at most a minute.
    func line(where fits: @escaping @Sendable (String) -> Bool) async -> String? {
        await Self.waiting { [lines] in lines.first(where: fits) }
    }

    /// All lines so far; after ``kill()`` all there are.
    var output: [String] { lines.all }

    /// Kills the process (`SIGKILL`) and blocks until it is gone, which needs no task.
    func kill() {
        child.send(SIGKILL)
        child.wait()
    }

    /// Returns when it has ended by itself.
    func end() async -> ChildProcess.End {
        await Self.waiting { [child] in child.wait() }
    }

    /// Blocks a thread of its own: those that run the tests are few.
    static func waiting<Value: Sendable>(for value: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread { continuation.resume(returning: value()) }
        }
    }
}
