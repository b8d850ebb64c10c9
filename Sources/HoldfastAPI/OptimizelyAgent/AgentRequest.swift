import Bucketing
import Definitions
import HTTPServer
import HoldfastCore

/// A request for an operation of the Agent: a request of its own, or an operation of a batch.
struct AgentRequest {
    let project: Project
    let query: AgentQuery
    let body: AgentBody
    let caller: Caller
    /// Whether this server has every definition that was stored when the request arrived; see ``Call/isUpToDate``.
    let isUpToDate: Bool
}

/// The parameters of a query, each of which may occur several times.
struct AgentQuery {
    private let items: [(name: String, value: String)]

    init(_ items: [(name: String, value: String)]) {
        self.items = items
    }

    /// Returns all values of a parameter.
    func values(_ name: String) -> [String] {
        items.filter { $0.name.utf8.elementsEqual(name.utf8) }.map(\.value)
    }

    /// Returns the first value of a parameter.
    func value(_ name: String) -> String? {
        items.first { $0.name.utf8.elementsEqual(name.utf8) }?.value
    }
}

extension AgentRequest {
    init(_ request: borrowing Request, _ call: Call, _ projects: ProjectView) throws(AgentError) {
        caller = Caller(token: call.admission.token, requestID: request.id)
        isUpToDate = call.isUpToDate
        project = try projects.project(ofHeader: request.sdkKey, for: caller.access)
        guard let items = request.hasQuery ? request.queryItems() : [] else {
            throw AgentError(.badRequest, "the query must be UTF-8")
        }
        query = AgentQuery(items)
        guard request.method == .post else {
            body = .empty
            return
        }
        let contentType = request.field("content-type")
        body = try request.withBody { bytes throws(AgentError) in try AgentBody(bytes, contentType: contentType) }
    }
}

extension ProjectView {
    /// Returns the project that an `X-Optimizely-SDK-Key` header names. The part after a colon is the Agent's access
    /// token for secured datafiles on a CDN, and is ignored.
    ///
    /// - Throws: 400 if the key is missing or malformed, 403 if it is unknown or the caller may not use the project.
    func project(ofHeader sdkKey: String?, for access: ProjectAccess) throws(AgentError) -> Project {
        guard let sdkKey, !sdkKey.isEmpty else {
            throw AgentError(.badRequest, "missing required X-Optimizely-SDK-Key header")
        }
        guard (try? SDKKey.check(sdkKey)) != nil else { throw AgentError(.badRequest, "sdkKey failed validation") }
        if let project = project(sdkKey) ?? project(String(sdkKey.prefix { $0 != ":" })) {
            do throws(CoreError) {
                try access.check(project.sdkKey)
            } catch {
                throw AgentError(error)
            }
            return project
        }
        throw AgentError(
            .forbidden, "unable to fetch fresh datafile (consider rechecking SDK key), status code: 403 Forbidden",
            mayBeStale: true)
    }
}

/// One operation of the Agent's API: a line of the route table, which a batch can also call.
struct AgentOperation {
    typealias Handler = (AgentRequest) async throws -> AgentResponse

    let method: Method
    let path: String
    let scope: Token.Scope
    let perform: Handler
    /// Responds like ``perform``, but without the cost of a task; `nil` if there is no such handler.
    private let callback: ((AgentRequest, Call) throws -> Void)?

    /// Whether an edge performs the operation itself; see ``APIRoute/isAnsweredByEdges``.
    var isAnsweredByEdges: Bool { scope != .admin }

    /// - Parameter callback: responds like `perform`, but without the cost of a task.
    init(
        _ method: Method, _ path: String, scope: Token.Scope, _ perform: @escaping Handler,
        callback: ((AgentRequest, Call) throws -> Void)? = nil
    ) {
        self.method = method
        self.path = path
        self.scope = scope
        self.perform = perform
        self.callback = callback
    }

    /// Returns the route for requests that are not part of a batch.
    func route(_ projects: ProjectView) -> APIRoute {
        guard let callback else {
            return APIRoute(method, path, scope: .token(scope), readsQuery: true) { request, call async throws in
                try await perform(AgentRequest(request, call, projects)).httpResponse
            }
        }
        return APIRoute(
            method, path, scope: .token(scope), readsQuery: true,
            callback: { request, call in try callback(AgentRequest(request, call, projects), call) })
    }
}
