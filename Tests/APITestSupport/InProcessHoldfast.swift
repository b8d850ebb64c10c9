import Dispatch
import HTTPServer
import HoldfastAPI
import HoldfastCore
import Logging
import ProcessTestSupport
import Storage
import TestSupport
import Testing

/// The application without sockets: one event loop, driven by the test's thread.
final class InProcessHoldfast: TestServer {
    private let store: any Store
    private let services: Services
    private let server: InProcessServer
    /// The write-ahead log, if no other server uses the database.
    private let log: String?
    /// Removed after the store is closed.
    private let directory: TemporaryDirectory
    private var isStopped = false

    init(
        database: String, tokens: String?, maxBodyBytes: Int?, changeHeartbeat: Int?,
        corsOrigins: String?, approvals: Int, keeping directory: TemporaryDirectory, isAlone: Bool,
        upstream: (any UpstreamRequests)? = nil, isReadOnlyCopy: Bool = false
    ) throws {
        log = isAlone ? database + "-wal" : nil
        self.directory = directory
        var store = try TestStore.open(database)
        if isReadOnlyCopy { store = ReadOnlyCopy(try ReadOnlyStore(store)) }
        self.store = store
        var limits = Limits()
        if let maxBodyBytes { limits.bodyBytes = maxBodyBytes }
        var options = Services.Options()
        options.servesAssistants = true
        options.importLineBytes = limits.bodyBytes
        if let changeHeartbeat { options.changeHeartbeat = Double(changeHeartbeat) / 1_000 }
        options.allowedOrigins = corsOrigins.flatMap { AllowedOrigins($0) }
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let services = Services(
            store: store, projects: try ProjectCatalog(store: store, logger: logger),
            events: try EventQueue(store: store),
            access: AccessControl(tokens: try tokens.map { try Token.parse($0) } ?? [], approvals: approvals),
            build: BuildInfo(version: "0", startedAt: 0), logger: logger, options: options, upstream: upstream)
        self.services = services
        server = try InProcessServer(limits: limits) { try HoldfastApplication(services: services, loop: $0) }
    }

    deinit {
        shutDown()
    }

    func response(to request: TestRequest) throws -> TestResponse {
        let response = try server.response(to: LocalRequest(request), within: 60)
        guard response.isComplete else { throw TestFailure("the response to \(request.target) was cut off") }
        return TestResponse(response, body: response.body)
    }

    func stream(_ request: TestRequest) throws -> any TestStream {
        InProcessBody(try server.stream(LocalRequest(request)))
    }

    func expectCleanStop(at sourceLocation: SourceLocation) {
        let lost = shutDown()
        #expect(lost == 0, "events were not stored", sourceLocation: sourceLocation)
        expectDatabaseAlone(log, at: sourceLocation)
    }

    /// Stops as `holdfast serve` does.
    ///
    /// - Returns: the number of events that were not stored.
    @discardableResult
    private func shutDown() -> Int {
        guard !isStopped else { return 0 }
        isStopped = true
        services.changes.close()
        server.stop()
        return services.close(before: .now() + 10)
    }
}

private final class InProcessBody: TestStream {
    let head: TestResponse
    private let stream: InProcessStream

    init(_ stream: InProcessStream) {
        self.stream = stream
        head = TestResponse(stream.head, body: [])
    }

    func receiveChunk() throws -> String? {
        try stream.next(within: 60).map { String(decoding: $0, as: UTF8.self) }
    }
}

extension LocalRequest {
    fileprivate init(_ request: TestRequest) {
        var fields = request.fields.map { field -> (name: String, value: String) in
            let parts = field.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            return (String(parts[0]), String(parts.dropFirst().joined().drop { $0 == " " }))
        }
        if !fields.contains(where: { $0.name == "Host" }) { fields.append(("Host", request.host)) }
        self.init(request.method, request.target, fields: fields, body: request.body ?? [])
    }
}

extension TestResponse {
    fileprivate init(_ response: CollectedResponse, body: [UInt8]) {
        var fields: [(name: String, value: String)] = []
        if let type = response.contentType { fields.append(("content-type", type.description)) }
        if let tag = response.entityTag { fields.append(("etag", tag.text)) }
        fields += response.fields.map { ($0.name.description.lowercased(), $0.value) }
        fields.append(("x-request-id", response.id.description))
        self.init(status: Int(response.status.code), fields: fields, body: body)
    }
}
