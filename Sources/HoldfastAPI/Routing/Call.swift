import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// One call of an endpoint: the permissions of the caller, the destination of the response, and whether the definitions
/// of this server are up to date.
///
/// Several servers may share a database. A request may thus name an element that another server has just defined and
/// that this one has not read yet. A handler then throws a ``DefinitionError``, and its route calls it again with the
/// newest definitions; see ``retrying(_:_:)``.
struct Call: Sendable {
    let responder: Responder
    let admission: Admission
    /// The pattern of the route.
    let pattern: String
    /// Whether this server has every definition that was stored when the request arrived. Otherwise another server may
    /// have just defined a name that is unknown here.
    private(set) var isUpToDate = false

    init(responder: Responder, admission: Admission, pattern: String) {
        self.pattern = pattern
        self.responder = responder
        self.admission = admission
    }

    // MARK: Permissions

    /// The projects that the caller may use.
    var access: ProjectAccess { admission.token?.projects ?? .all }

    /// Whether the caller may set overrides in experiments of all projects.
    var mayOverride: Bool { mayManage && access == .all }

    /// Whether the caller is an admin, possibly of some projects only.
    var mayManage: Bool { admission.token?.scope.allows(.admin) ?? true }

    /// Whether the caller may remove overrides.
    var mayRemoveOverrides: Bool { mayManage }

    /// Whether the caller may name any id as `anonymous_id`; see ``Caller/mayNameAnyUser``.
    var mayNameAnyUser: Bool { Caller.mayNameAnyUser(admission.token) }

    /// Checks that the caller may load and save the profile of a user, on a route of ``APIRoute/Scope/profile(_:)``.
    /// With a token of scope `client` a caller may use the profile of the anonymous user of its device, whose id nobody
    /// else knows, and of the person whom the token names.
    ///
    /// - Throws: 403 otherwise.
    func checkProfile(of userID: Identifier) throws(CoreError) {
        guard let token = admission.token, token.scope == .client, !TakeoverRules.isUnguessable(userID.string),
            token.person?.subject.map({ Identifier($0) }) != userID
        else { return }
        throw CoreError(
            .forbidden,
            "the scope \(admission.scope) is required for this user; a token of scope client may use the profile of its anonymous user ('anonymous-' and a random UUID) and of the user whom a signed token names (`sub`)"
        )
    }

    /// Whether the caller may read users' attributes, and may thus get to know whether a value was stored before.
    var readsAttributes: Bool { admission.token?.scope.allows(.attributes) ?? true }

    /// Whether changes of running experiments require the approval of a second person, or have it already.
    var approvalPolicy: ApprovalPolicy {
        admission.approval.map { .given($0) } ?? (admission.control.needsApproval ? .needed : .notNeeded)
    }

    /// Returns the author of the changes of this call for the audit log. For an approved proposal this is the person
    /// who proposed it.
    func author(_ request: borrowing Request) -> Author {
        if let approval = admission.approval {
            return Author(name: approval.proposal.author, requestID: request.id.description)
        }
        return Caller(token: admission.token, requestID: request.id).author
    }

    // MARK: Responses

    func respond(_ response: Response) {
        responder.send(response)
    }

    /// Responds with the result of the store, encoded by `encode`, or with its error in the native format.
    @inline(__always)
    func respond<Value>(_ result: Result<Value, StorageError>, _ encode: (Value) -> Response) {
        switch result {
        case .success(let value): responder.send(encode(value))
        case .failure(let error): respondWithError(error)
        }
    }

    /// Responds with an error in the native format.
    func respondWithError(_ error: any Error) {
        responder.send(Problem(error).response(on: pattern))
    }

    /// Returns a response with a stream, which is cut off if the caller's token is revoked before its end.
    func response(_ contentType: StaticString, stream: any ResponseStream) -> Response {
        Response(.ok, contentType: contentType, body: .stream(AdmittedStream(stream, admission)))
    }

    // MARK: Definitions of other servers

    /// Runs work. If the work fails because this server may lack a definition, reads the newest definitions and runs
    /// the work once more. So the work must throw a ``DefinitionError`` before it has any effect.
    func retrying<Value>(
        _ projects: ProjectView, _ work: (Call) async throws -> Value
    ) async throws -> Value {
        do {
            return try await work(self)
        } catch {
            guard mayLackDefinition(error) else { throw error }
            return try await work(updated(projects))
        }
    }

    /// Reads the definitions that other servers have stored.
    ///
    /// - Returns: this call, which is now up to date.
    func updated(_ projects: ProjectView) async throws(StorageError) -> Call {
        try await projects.update()
        var call = self
        call.isUpToDate = true
        return call
    }

    /// Whether an error may be due to a definition that this server has not read yet.
    func mayLackDefinition(_ error: any Error) -> Bool {
        !isUpToDate && (error as? any DefinitionError)?.mayBeStale == true
    }

    /// Checks that this server has the newest definitions. A handler calls this method if it does not know a name that
    /// another server may have just defined.
    ///
    /// - Throws: a ``DefinitionError``, after which the route reads the newest definitions and calls the handler again.
    func requireUpToDate() throws(CoreError) {
        guard isUpToDate else { throw CoreError(.conflict, "the definitions are outdated", mayBeStale: true) }
    }
}

/// The caller of a request, and the request's id, for handlers that have no ``Call``.
struct Caller {
    /// The token; `nil` if the server requires none.
    let token: Token?
    let requestID: RequestID

    /// The author for the audit log.
    var author: Author {
        Author(name: token?.name ?? Author.anonymousName, requestID: requestID.description)
    }

    /// The projects that the caller may use.
    var access: ProjectAccess { token?.projects ?? .all }

    /// Whether the caller may name any id as `anonymous_id`, because its scope allows the caller to use all profiles.
    /// Other callers may only name ids that ``TakeoverRules`` accept.
    var mayNameAnyUser: Bool { Self.mayNameAnyUser(token) }

    static func mayNameAnyUser(_ token: Token?) -> Bool { token?.scope.allows(.read) ?? true }
}

/// An error that another server may have made obsolete by storing a definition. If a handler throws such an error, its
/// route reads the newest definitions and calls the handler again. So the handler must throw it before it has any
/// effect.
protocol DefinitionError: Error {
    /// Whether the cause may be that this server has not read the newest definitions.
    var mayBeStale: Bool { get }
}

extension CoreError: DefinitionError {}

extension EventRefusal: DefinitionError {
    var mayBeStale: Bool { error.mayBeStale }

    /// Creates the refusal of an event from any error. After an error of the store the same event may be accepted
    /// later.
    init(of error: any Error) {
        switch error {
        case let refusal as EventRefusal: self = refusal
        case let error as CoreError: self.init(error)
        case let error as StorageError: self.init(CoreError(error), isRetriable: true)
        default: self.init(CoreError(.unavailable, "the request failed"), isRetriable: true)
        }
    }
}

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
            return writer.fail(Admission.revoked.response(on: nil))
        }
        stream.produce(writer)
    }
}

extension StickyDecisionService {
    /// Makes decisions, and responds with them. Usually callbacks make them, without the cost of a task. If that is not
    /// possible, for example because another request has changed the profile meanwhile, a task decides again.
    ///
    /// - Parameters:
    ///   - encode: returns the response with the decisions.
    ///   - render: returns the response to an error.
    func respond(
        to query: DecisionQuery, in project: Project, _ call: Call,
        _ encode: @escaping (Decisions) throws -> Response, error render: @escaping (any Error) -> Response
    ) {
        decideAtOnce(query, in: project) { [self] attempt in
            do {
                switch attempt {
                case .decided(let decisions): call.respond(try encode(decisions))
                case .failed(let error): throw error
                case .outdated, .taken:
                    call.responder.send {
                        do { return try encode(await self.decide(query, in: project)) } catch { return render(error) }
                    }
                }
            } catch {
                call.respond(render(error))
            }
        }
    }
}

extension ProjectView {
    /// Returns the project of a request for flags that names none; `nil` if the server has no project and so no flags.
    func project(ofAny call: Call) throws(CoreError) -> Project? {
        do throws(CoreError) {
            return try project(named: nil, for: call.access)
        } catch {
            // Another server may have just made the first project.
            guard error.kind == .notFound, call.isUpToDate else { throw error }
            return nil
        }
    }
}
