import Glibc
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

    /// Blocks until the program has written a matching line, or has ended, at most 20 seconds.
    func line(where fits: (String) -> Bool) -> String? {
        lines.first(where: fits)
    }

    /// All lines so far; after ``kill()`` all there are.
    var output: [String] { lines.all }

    /// Kills the process (`SIGKILL`) and blocks until it is gone.
    func kill() {
        child.send(SIGKILL)
        child.wait()
    }

    /// Blocks until it has ended by itself.
    func wait() -> ChildProcess.End {
        child.wait()
    }
}
