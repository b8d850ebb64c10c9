public import Glibc
import JSON
public import ProcessTestSupport
public import Testing

/// `holdfast serve` as a process of its own, on a port that the kernel chooses. Killed with its last reference.
public final class ServerProcess: TestServer, Sendable {
    public let child: ChildProcess
    public let port: UInt16
    /// The write-ahead log, if no other server uses the database.
    private let log: String?
    /// Removed after the process has ended.
    private let directory: TemporaryDirectory?

    /// Options for frequent checkpoints, so that some happen while servers are killed.
    public static let smallLog = ["--checkpoint-size", "64KiB"]
    /// On a slow machine nothing must be refused for lack of time, except where a test sets a limit.
    private static let patience = [
        "HOLDFAST_MAX_WRITE_WAIT": "120s", "HOLDFAST_MAX_LOOP_DELAY": "120s", "HOLDFAST_LOCK_TIMEOUT": "60s",
    ]

    /// Starts the server and blocks until it listens.
    ///
    /// - Parameters:
    ///   - wrapper: the command that runs the server, with its arguments.
    ///   - directory: a directory to keep as long as the server.
    ///   - isAlone: whether no other server uses the database, so that a clean stop leaves no write-ahead log.
    public init(
        database: String, _ options: [String] = [], environment: [String: String] = [:],
        through wrapper: [String] = [], keeping directory: TemporaryDirectory? = nil, isAlone: Bool = false
    ) throws {
        log = isAlone ? database + "-wal" : nil
        self.directory = directory
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
        child.wait()
    }

    /// Opens a connection.
    public func client() throws -> HTTPClient {
        try HTTPClient(port: port)
    }

    /// Uses a connection of its own.
    public func response(to request: TestRequest) throws -> TestResponse {
        let client = try client()
        try client.send(request.encoded())
        return try client.receive(isHead: request.method == "HEAD")
    }

    public func stream(_ request: TestRequest) throws -> any TestStream {
        let client = try client()
        try client.send(request.encoded())
        return try SocketStream(client)
    }

    public func expectCleanStop(at sourceLocation: SourceLocation) {
        stop(sourceLocation: sourceLocation)
        expectDatabaseAlone(log, at: sourceLocation)
    }

    /// Asks for a clean shutdown and expects exit status 0.
    public func stop(with signal: Int32 = SIGTERM, sourceLocation: SourceLocation = #_sourceLocation) {
        child.send(signal)
        #expect(child.wait() == .exit(0), "\(child.errors.text)", sourceLocation: sourceLocation)
    }

    /// Ends the process as a power cut would.
    public func kill(sourceLocation: SourceLocation = #_sourceLocation) {
        child.send(SIGKILL)
        #expect(child.wait() == .signal(SIGKILL), sourceLocation: sourceLocation)
    }
}

/// A response whose body is read chunk by chunk from a connection. The connection is closed with the last reference.
private final class SocketStream: TestStream {
    let head: TestResponse
    private let client: HTTPClient

    init(_ client: HTTPClient) throws {
        self.client = client
        head = try client.receiveHead()
    }

    func receiveChunk() throws -> String? {
        try client.receiveChunk()
    }
}
