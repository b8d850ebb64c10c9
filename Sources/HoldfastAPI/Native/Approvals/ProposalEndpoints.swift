import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/proposals`: changes of running experiments that wait for the approval of a second person (`--approvals 2`).
///
/// A proposal is the request as it was sent. When it is approved, the server makes this request, provided that the
/// definitions have not changed since.
struct ProposalEndpoints {
    /// A handler of a route that changes definitions.
    typealias Handler = (borrowing Request, Call) async throws -> Response

    let store: any StoreSession
    let projects: ProjectView
    let requests: LocalRequests
    let clock: StoreClock

    init(_ loop: LoopServices) {
        store = loop.session
        projects = loop.projects
        requests = loop.requests
        clock = loop.services.store.clock
    }

    // MARK: Proposing

    /// Returns a handler that makes a change, or if the change lacks a required approval, stores it as a proposal and
    /// responds 202.
    func holding(_ handle: @escaping Handler) -> Handler {
        { request, call in
            do {
                return try await handle(request, call)
            } catch let change as HeldChange {
                return try await propose(change, request, call)
            }
        }
    }

    /// Stores the request as a proposal, unless the same one is waiting already, and responds with the proposal.
    private func propose(
        _ change: HeldChange, _ request: borrowing Request, _ call: Call
    ) async throws -> Response {
        let author = call.author(request)
        var proposal = Proposal(
            id: Self.makeID(), sdkKey: change.sdkKey, createdAt: clock.now(), author: author.name,
            basis: change.basis, method: request.method.name.description, target: request.target,
            experiments: change.experiments, changes: change.changes, body: request.withBody { Array($0) })
        if let waiting = try await waiting(like: proposal) {
            proposal = waiting
        } else {
            try await store.write(.propose(proposal, by: author))
        }
        var response = Response.json(["proposal": describe(proposal)], .accepted)
        response.fields = [("Location", "/v1/proposals/\(proposal.id)")]
        return response
    }

    /// Returns a random id of 11 or 12 hexadecimal digits, so that two proposals are very unlikely to have the same id.
    private static func makeID() -> String { String(UInt64.random(in: 1 << 40..<1 << 48), radix: 16) }

    /// Finds a waiting proposal, of any author, with the same request and the same state of definitions.
    private func waiting(like proposal: Proposal) async throws -> Proposal? {
        let all = try await store.read(.proposals(sdkKey: proposal.sdkKey))
        let similar = all.filter { other in
            other.status == .pending && other.basis == proposal.basis && other.method == proposal.method
                && other.target == proposal.target
        }
        for other in similar {
            // The list has no bodies, so the proposal is read by itself.
            guard let found = try await store.read(.proposal(id: other.id)), found.status == .pending else { continue }
            if found.body ?? [] == proposal.body ?? [] { return found }
        }
        return nil
    }

    // MARK: Reading

    /// Responds with the last proposals of the project, newest first; `?status=` names one status.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["status", "limit"])
        let limit = try Request.pageLimit(query)
        let statuses = ["pending", "approved", "rejected", "outdated"]
        if let status = query["status"], !statuses.contains(status) {
            throw CoreError(
                .invalid, "`status` must be one of \(statuses.joined(separator: ", ")); got '\(status)'")
        }
        let project = try projects.project(named: request.sdkKey, for: call.access)
        let found = try await store.read(.proposals(sdkKey: project.sdkKey)).filter { proposal in
            query["status"] == nil || proposal.statusName(in: project) == query["status"]
        }
        return .json([
            "proposals": .array(found.prefix(limit).map { describe($0) }),
            "approvals": .integer(call.admission.control.approvals),
        ])
    }

    /// Responds with one proposal, with its body.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        .json(describe(try await find(request, call)))
    }

    // MARK: Deciding

    /// Makes the change of a proposal, by making its request with the caller's token. So the caller must be allowed to
    /// make the change, as the author of the proposal was.
    func approve(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let proposal = try await find(request, call)
        try proposal.expectPending(in: projects.project(proposal.sdkKey))
        let author = call.author(request)
        // Without a token nothing shows that the caller is another person than the author.
        guard call.admission.token != nil, !proposal.isOf(author) else {
            throw CoreError(
                .forbidden, "a second person must approve the proposal; '\(author.name)' has made it")
        }
        var fields = [("X-Request-Id", request.id.description), ("X-Optimizely-SDK-Key", proposal.sdkKey)]
        if let secret = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key")) {
            fields.append(("Authorization", "Bearer \(secret)"))
        }
        let response = await requests.response(
            to: LocalRequest(
                proposal.method, proposal.target, fields: fields, body: proposal.body ?? [], peer: request.peer),
            approving: Approval(of: proposal, by: author))
        // The route has refused the request. The approver gets its response.
        guard response.status.code < 300 else {
            var refusal = Response(response.status, contentType: response.contentType, body: .bytes(response.body))
            refusal.fields = response.fields
            return refusal
        }
        let settled = try await find(request, call)
        // A proposal is settled together with its change. A change that makes no difference does not settle it.
        guard settled.status == .approved else {
            throw CoreError(.conflict, "the change that the proposal '\(proposal.id)' asks for makes no difference")
        }
        return .json(describe(settled))
    }

    /// Rejects a proposal. Any admin may reject it, including its author. The body is empty or `{"reason":TEXT}`.
    func reject(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let reason = try request.withBody { bytes throws(CoreError) -> String? in
            guard !bytes.isEmpty else { return nil }
            let body = try JSONInput.parse(bytes).object("the body", knowing: ["reason"])
            return body["reason"] == nil ? nil : try body.text("reason")
        }
        if let reason, reason.utf8.count > 1_024 {
            throw CoreError(
                .unprocessable, "`reason` must have at most 1024 bytes; got \(reason.utf8.count)", at: ["reason"])
        }
        let proposal = try await find(request, call)
        let author = call.author(request)
        let isDone = try await store.write(.reject(proposal: proposal.id, reason: reason, by: author))
        let decided = try await find(request, call)
        if !isDone { try decided.expectPending(in: projects.project(proposal.sdkKey)) }
        return .json(describe(decided))
    }

    // MARK: Proposals

    /// Returns the proposal in the path.
    ///
    /// - Throws: 404 if there is no such proposal, 403 if the caller may not use its project.
    private func find(_ request: borrowing Request, _ call: Call) async throws -> Proposal {
        let id = request.parameter(0) ?? ""
        guard let proposal = try await store.read(.proposal(id: id)) else {
            throw CoreError(.notFound, "no proposal has the id '\(id.shortened(to: CoreError.longestQuote))'")
        }
        try call.access.check(proposal.sdkKey)
        return proposal
    }

    /// Returns a proposal as responses show it. URLs in its body, which may be secrets, are hidden.
    private func describe(_ proposal: Proposal) -> JSONValue {
        var request = JSONObject()
        request["method"] = .string(proposal.method)
        request["target"] = .string(proposal.target)
        if let body = proposal.body {
            request["body"] = (try? JSONParser().parse(body)).map(DefinitionSet.hidingURLs) ?? .null
        }
        let decision = proposal.decision
        return [
            "id": .string(proposal.id), "sdk_key": .string(proposal.sdkKey),
            "status": .string(proposal.statusName(in: projects.project(proposal.sdkKey))),
            "author": .string(proposal.author), "created_at": .string(proposal.createdAt.rfc3339),
            "experiments": .array(proposal.experiments.map { .string($0) }), "changes": proposal.changes,
            "request": .object(request), "decided_by": decision.map { .string($0.author) } ?? .null,
            "decided_at": decision.map { .string($0.time.rfc3339) } ?? .null,
            "reason": decision?.reason.map { .string($0) } ?? .null,
        ]
    }
}

/// The waiting proposals of a project. The responses of other endpoints show them with the elements that they would
/// change.
struct WaitingProposals: Sendable {
    private let proposals: [Proposal]

    /// - Returns: `nil` if changes need no approval.
    init?(in project: Project, _ store: any StoreSession, _ call: Call) async throws {
        guard call.admission.control.needsApproval else { return nil }
        proposals = try await store.read(.proposals(sdkKey: project.sdkKey)).filter {
            $0.statusName(in: project) == "pending"
        }
    }

    /// Adds the member `proposals` to the description of an element that waiting proposals would change.
    func describe<Element: DefinedElement>(_ element: Element, _ description: JSONValue) -> JSONValue {
        let proposalsOfElement = proposals.filter { Self.concerns($0, element) }
        guard !proposalsOfElement.isEmpty, var object = description.object else { return description }
        object["proposals"] = .array(
            proposalsOfElement.map { proposal in
                [
                    "id": .string(proposal.id), "author": .string(proposal.author),
                    "created_at": .string(proposal.createdAt.rfc3339),
                ]
            })
        return .object(object)
    }

    /// Whether a proposal would change an element, or a running experiment with the key of the element.
    private static func concerns<Element: DefinedElement>(_ proposal: Proposal, _ element: Element) -> Bool {
        let mayBeRunning = Element.self == Experiment.self || Element.self == Flag.self
        if mayBeRunning, proposal.experiments.contains(element.key.string) { return true }
        return (proposal.changes.array ?? []).contains { change in
            change.object?["action"]?.string?.hasPrefix("\(Element.noun).") == true
                && change.object?["target"]?.string == element.key.string
        }
    }
}
