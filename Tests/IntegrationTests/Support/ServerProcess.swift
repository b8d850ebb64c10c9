import Bucketing
import Glibc
import JSON
import Testing

/// `holdfast serve` as a process of its own, on a port that the kernel chose. Killed when the test lets go of it.
final class ServerProcess: Sendable {
    let child: ChildProcess
    let port: UInt16

    /// Has the log copied so often that it happens while servers are killed.
    static let smallLog = ["--checkpoint-size", "64KiB"]
    /// However slow the machine, nothing is refused for lack of time, except where that is what is tested.
    private static let patience = ["HOLDFAST_MAX_WRITE_WAIT": "120s", "HOLDFAST_MAX_LOOP_DELAY": "120s"]

    /// Starts the server and blocks until it listens.
    init(
        database: String, _ options: [String] = [], environment: [String: String] = [:],
        through wrapper: [String] = []
    ) throws {
        let command =
            wrapper + [Executable.holdfast, "serve", "--listen", "127.0.0.1:0", "--database", database] + options
        child = try ChildProcess(
            command[0], Array(command.dropFirst()), environment: Self.patience.merging(environment) { $1 })
        guard let line = child.errors.first(where: { $0.contains(#""message":"listening""#) }),
            let address = try JSONParser().parse(line).object?["address"]?.string,
            let port = address.split(separator: ":").last.flatMap({ UInt16($0) })
        else {
            child.send(SIGKILL)
            throw TestFailure("the server did not start: \(child.wait()) \(child.errors.text)")
        }
        self.port = port
    }

    deinit {
        child.send(SIGKILL)
        _ = child.wait()
    }

    func client() throws -> HTTPClient {
        try HTTPClient(port: port)
    }

    /// Asks on a connection of its own.
    func request(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil
    ) throws -> Answer {
        try client().request(method, target, body, token: token)
    }

    /// Asks for a clean shutdown and checks that it was one.
    func stop(with signal: Int32 = SIGTERM, sourceLocation: SourceLocation = #_sourceLocation) {
        child.send(signal)
        #expect(child.wait() == .exit(0), "\(child.errors.text)", sourceLocation: sourceLocation)
    }

    /// Ends the process as a power cut would.
    func kill(sourceLocation: SourceLocation = #_sourceLocation) {
        child.send(SIGKILL)
        #expect(child.wait() == .signal(SIGKILL), sourceLocation: sourceLocation)
    }
}
