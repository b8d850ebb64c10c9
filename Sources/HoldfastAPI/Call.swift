import Bucketing
import HTTPServer
import HoldfastCore
import Storage

/// One call of an endpoint: who makes it, and where the response goes.
struct Call: Sendable {
    let responder: Responder
    let admission: Admission
    /// Whether this server knows every definition that was stored when the request arrived. Otherwise a name that is
    /// unknown here may be one that another server has just defined; see ``DefinitionError``.
    private(set) var isUpToDate = false

    init(responder: Responder, admission: Admission) {
        self.responder = responder
        self.admission = admission
    }

    /// Whether the caller may set overrides.
    var mayOverride: Bool { admission.token?.scope.allows(.admin) ?? true }

    /// ``Caller/mayNameAnyUser``
    var mayNameAnyUser: Bool { Caller.mayNameAnyUser(admission.token) }

    /// Whether the caller may read what is stored of users' attributes, and so be told whether a value was stored before.
    var readsAttributes: Bool { admission.token?.scope.allows(.attributes) ?? true }

    /// Returns the author to whom the audit log attributes the changes of this call.
    func author(_ request: borrowing Request) -> Author {
        Caller(token: admission.token, requestID: request.id).author
    }

    func respond(_ response: Response) {
        responder.send(response)
    }

    /// Responds with a stream, and cuts it off if the caller's token is revoked before its end.
    func respond(_ contentType: StaticString, stream: any ResponseStream) {
        let stream = AdmittedStream(stream, admission)
        responder.send(Response(.ok, contentType: contentType, body: .stream(stream)))
    }

    /// Responds with JSON and a final line feed, for terminals.
    func respond(_ status: Status = .ok, json: consuming [UInt8], entityTag: EntityTag? = nil) {
        json.append(UInt8(ascii: "\n"))
        responder.send(Response(status, contentType: MediaType.json, entityTag: entityTag, body: .bytes(json)))
    }

    /// Responds with JSON, or with 304 if the caller's `If-None-Match` matches its entity tag. For methods other than
    /// `GET`; for `GET` the server compares automatically.
    ///
    /// - Parameter entityTag: by default that of the whole body.
    func respond(json: [UInt8], entityTag: EntityTag? = nil, unlessKnownAs ifNoneMatch: String?) {
        let tag = entityTag ?? EntityTag(of: json)
        if let ifNoneMatch, tag.isListed(in: ifNoneMatch) {
            responder.send(Response(.notModified, entityTag: tag))
        } else {
            respond(json: json, entityTag: tag)
        }
    }

    /// Runs work on the event loop of the request, for work that ends in the response.
    func onEventLoop(_ work: @escaping @Sendable () -> Void) {
        responder.onEventLoop(work)
    }

    /// Calls `body` for each element of a request, on its event loop and a few milliseconds at a time, so that other
    /// requests are served in between. Stops if the client disconnects.
    func forEach(_ indices: Range<Int>, _ body: @escaping (Int) -> Void) {
        Steps(indices, responder, body).run()
    }

    /// Reads the definitions that other servers have stored, then continues on the event loop of the request.
    ///
    /// - Parameter work: gets this call, which is now up to date.
    func updating(_ projects: ProjectView, _ work: @escaping (Result<Call, StorageError>) -> Void) {
        let work = PendingCompletion(work)
        projects.update { result in
            onEventLoop {
                var call = self
                call.isUpToDate = true
                work.call(result.map { call })
            }
        }
    }

    /// Makes the route read the definitions of other servers first, for a change that depends on them.
    func requireUpToDate() throws(CoreError) {
        guard isUpToDate else { throw CoreError(.conflict, "the definitions are outdated", concernsDefinitions: true) }
    }

    /// Runs work that ends in a response, and responds with the error if it throws.
    func attempt(_ work: () throws -> Void) {
        do { try work() } catch { fail(error) }
    }

    /// Responds with an error in the native format.
    func fail(_ error: any Error) {
        responder.send(Problem(error).response)
    }
}

/// An error that may be due to a definition which another server has stored a moment ago. If a handler throws one before
/// it has any effect, its route reads the definitions and calls it again.
protocol DefinitionError: Error {
    /// Whether something is not defined, as far as this server knows.
    var concernsDefinitions: Bool { get }
}

extension CoreError: DefinitionError {}

/// Ends a stream when its caller's token is revoked.
private final class AdmittedStream: ResponseStream {
    private let stream: any ResponseStream
    private let admission: Admission

    init(_ stream: any ResponseStream, _ admission: Admission) {
        self.stream = stream
        self.admission = admission
    }

    func produce(_ writer: StreamWriter) {
        guard admission.isValid else {
            return writer.fail(Problem(.unauthorized, "the token is no longer valid").response)
        }
        stream.produce(writer)
    }
}

/// Runs the steps of ``Call/forEach(_:_:)``, and yields to the event loop between slices of time.
private final class Steps: @unchecked Sendable {
    // Safe: it schedules itself only on the event loop that it belongs to.
    private var rest: Range<Int>
    private let responder: Responder
    private let body: (Int) -> Void

    private static let duration = Duration.milliseconds(5)

    init(_ indices: Range<Int>, _ responder: Responder, _ body: @escaping (Int) -> Void) {
        rest = indices
        self.responder = responder
        self.body = body
    }

    func run() {
        let end = ContinuousClock.now + Self.duration
        while responder.isOpen, let index = rest.first {
            rest.removeFirst()
            body(index)
            if ContinuousClock.now > end, !rest.isEmpty { return responder.schedule { self.run() } }
        }
    }
}

extension Project {
    /// The ETag of the datafile.
    var entityTag: EntityTag { EntityTag(contentHash) }
}

extension EntityTag {
    /// Hashes a representation, without the line feed that ``Call`` appends.
    init(of json: [UInt8]) {
        self = json.withUnsafeBytes { EntityTag(hashing: $0) }
    }
}

enum MediaType {
    static let json: StaticString = "application/json"
    static let problem: StaticString = "application/problem+json"
    static let lines: StaticString = "application/x-ndjson"
    static let events: StaticString = "text/event-stream"
}

/// Who makes a call, and in which request.
struct Caller {
    /// `nil` when the server asks for none.
    let token: Token?
    let requestID: RequestID

    /// The caller as the audit log names it.
    var author: Author {
        Author(name: token?.name ?? Author.anonymousName, requestID: requestID.description)
    }

    /// Whether the caller may name any id as `anonymous_id`, because all profiles are open to it; otherwise it is limited
    /// by ``TakeoverRules``.
    var mayNameAnyUser: Bool { Self.mayNameAnyUser(token) }

    static func mayNameAnyUser(_ token: Token?) -> Bool { token?.scope.allows(.read) ?? true }
}

extension ProjectView {
    /// Returns the project of a request for flags that names none; `nil` if the server has no project and so no flags.
    func project(ofAny call: Call) throws(CoreError) -> Project? {
        do throws(CoreError) {
            return try project(named: nil)
        } catch {
            guard error.kind == .notFound, call.isUpToDate else { throw error }
            return nil
        }
    }
}
