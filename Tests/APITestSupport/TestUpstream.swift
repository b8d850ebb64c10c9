import HTTPServer
public import HoldfastAPI
import Storage
import Testing

/// The upstream of an edge in a test: another test server, asked on the thread of the test.
public final class TestUpstream: UpstreamRequests, @unchecked Sendable {
    // Safe: everything runs on the thread of the test.
    private let server: any TestServer
    private let token: String
    /// Fails every request from now on.
    public var failure: UpstreamFailure?
    /// Responds to every request from now on.
    public var scripted: ForwardedResponse?
    public private(set) var requests: [UpstreamRequest] = []
    /// How often the edge has waited for what it has changed.
    public private(set) var catchUps = 0

    /// - Parameter token: the secret of the edge's token.
    public init(_ server: any TestServer, token: String) {
        self.server = server
        self.token = token
    }

    public func send(_ request: UpstreamRequest) async throws(UpstreamFailure) -> ForwardedResponse {
        requests.append(request)
        if let failure { throw failure }
        if let scripted { return scripted }
        let fields = request.fields.map { "\($0.name): \($0.value)" }
        do {
            let response = try server.response(
                to: TestRequest(
                    request.method, request.target, bytes: request.body, token: request.hasOwnToken ? token : nil,
                    fields: fields))
            return ForwardedResponse(status: response.status, fields: response.fields, body: response.body)
        } catch {
            Issue.record(error)
            throw .away
        }
    }

    public var status: EdgeStatus {
        EdgeStatus(
            upstream: "http://upstream.test", isUp: failure == nil, failure: failure.map { "\($0)" }, isComplete: true,
            lag: 0.5, waitingEvents: 3)
    }

    public func catchUp() async {
        catchUps += 1
    }
}

/// Starts a server in process that forwards to another as an edge does.
///
/// - Parameters:
///   - isReadOnlyCopy: whether its store is a copy that takes no changes, as that of an edge whose upstream is away.
///   - prepare: fills the copy.
public func startTestEdge(
    of upstream: TestUpstream, tokens: String? = nil, isReadOnlyCopy: Bool = false,
    _ prepare: (any TestServer) throws -> Void = { _ in }
) throws -> any TestServer {
    let directory = try TemporaryDirectory(inMemory: true)
    let path = try TestStore.location("edge.db", in: directory)
    func start(
        _ upstream: TestUpstream?, tokens: String?, isReadOnlyCopy: Bool
    ) throws -> InProcessHoldfast {
        try InProcessHoldfast(
            database: path, tokens: tokens, maxBodyBytes: nil, changeHeartbeat: nil, corsOrigins: nil, approvals: 1,
            keeping: directory, isAlone: false, upstream: upstream, isReadOnlyCopy: isReadOnlyCopy)
    }
    let former = try start(nil, tokens: nil, isReadOnlyCopy: false)
    try prepare(former)
    former.stop()
    return try start(upstream, tokens: tokens, isReadOnlyCopy: isReadOnlyCopy)
}

/// A store that is a copy, and refuses changes.
final class ReadOnlyCopy: Store {
    private let base: ReadOnlyStore

    init(_ base: ReadOnlyStore) {
        self.base = base
    }

    var isCopy: Bool { true }
    var rules: ProfileRules { base.rules }
    var clock: StoreClock { base.clock }

    func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try base.makeSession(on: executor)
    }

    func probe() async throws(StorageError) { try await base.probe() }
    func metrics() -> StoreMetrics { base.metrics() }
    func close() { base.close() }
}
