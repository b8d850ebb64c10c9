import Foundation
public import Testing

/// Holdfast with a database, as clients of its API see it: in process, or the built binary over sockets.
public protocol TestServer: AnyObject {
    /// Sends a request and waits for the whole response.
    func response(to request: TestRequest) throws -> TestResponse

    /// Sends a request and waits for the head of the response, whose body may never end.
    func stream(_ request: TestRequest) throws -> any TestStream

    /// Shuts down, and expects that nothing that was accepted is lost.
    func expectCleanStop(at sourceLocation: SourceLocation)
}

/// The body of a response, while it is produced.
public protocol TestStream: AnyObject {
    /// The response without its body.
    var head: TestResponse { get }

    /// Waits for the next piece of the body. Returns `nil` at its end.
    func receiveChunk() throws -> String?
}

extension TestServer {
    @discardableResult
    public func request(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) throws -> TestResponse {
        try response(to: TestRequest(method, target, body, token: token, fields: fields))
    }

    public func stream(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) throws -> any TestStream {
        try stream(TestRequest(method, target, body, token: token, fields: fields))
    }

    public func stop(sourceLocation: SourceLocation = #_sourceLocation) {
        expectCleanStop(at: sourceLocation)
    }
}

/// Starts Holdfast in process, or, with `HOLDFAST_TEST_OVER_SOCKETS=1` in the environment, the built binary.
///
/// - Parameters:
///   - directory: where the database is; by default a directory of the server's own.
///   - tokens: lines of `scope name secret`; `nil` for a server that asks for no tokens.
///   - changeHeartbeat: milliseconds between two signs of life of a stream of changes.
///   - corsOrigins: the origins whose pages may call the server.
///   - approvals: how many people a change of a running experiment needs.
public func startTestServer(
    in directory: TemporaryDirectory? = nil, database: String = "holdfast.db", tokens: String? = nil,
    maxBodyBytes: Int? = nil, changeHeartbeat: Int? = nil, corsOrigins: String? = nil, approvals: Int = 1
) throws -> any TestServer {
    let isAlone = directory == nil
    let directory = try directory ?? TemporaryDirectory(inMemory: true)
    let path = try TestStore.location(database, in: directory)
    guard ProcessInfo.processInfo.environment["HOLDFAST_TEST_OVER_SOCKETS"] == "1" else {
        return try InProcessHoldfast(
            database: path, tokens: tokens, maxBodyBytes: maxBodyBytes, changeHeartbeat: changeHeartbeat,
            corsOrigins: corsOrigins, approvals: approvals, keeping: directory, isAlone: isAlone)
    }
    var options = TestStore.options + ["--mcp"]
    if let tokens { options += ["--tokens-file", try directory.write(tokens, to: database + ".tokens")] }
    if let maxBodyBytes { options += ["--max-body-size", "\(maxBodyBytes)"] }
    if let changeHeartbeat { options += ["--change-heartbeat", "\(changeHeartbeat)ms"] }
    if approvals != 1 { options += ["--approvals", "\(approvals)"] }
    if let corsOrigins { options += ["--cors-origins", corsOrigins] }
    return try ServerProcess(database: path, options, keeping: directory, isAlone: isAlone)
}

/// Expects that after a clean stop the database file alone is complete.
func expectDatabaseAlone(_ log: String?, at sourceLocation: SourceLocation) {
    guard let log else { return }
    #expect(!FileManager.default.fileExists(atPath: log), "data stays in the log", sourceLocation: sourceLocation)
}

/// A request of a test.
public struct TestRequest: Sendable {
    public var method: String
    /// Path and query, percent-encoded.
    public var target: String
    public var body: [UInt8]?
    /// Header fields, such as `If-Match: *`, without `Host` and `Content-Length`.
    public var fields: [String]
    /// As in the field `Host`.
    public var host: String

    public init(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) {
        self.init(method, target, bytes: body.map { Array($0.utf8) }, token: token, fields: fields)
    }

    public init(
        _ method: String, _ target: String, bytes: [UInt8]?, token: String? = nil, fields: [String] = [],
        host: String = "localhost"
    ) {
        self.host = host
        self.method = method
        self.target = target
        body = bytes
        self.fields = fields + (token.map { ["Authorization: Bearer \($0)"] } ?? [])
    }

    /// Returns the request as HTTP/1.1 writes it.
    public func encoded() -> [UInt8] {
        var lines = ["\(method) \(target) HTTP/1.1", "Host: \(host)"] + fields
        if let body { lines.append("Content-Length: \(body.count)") }
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (body ?? [])
    }
}

/// Asks again and again, up to a minute, until something holds.
public func eventually(_ holds: () throws -> Bool) rethrows -> Bool {
    let deadline = ContinuousClock.now + .seconds(60)
    while try !holds() {
        guard .now < deadline else { return false }
    }
    return true
}
