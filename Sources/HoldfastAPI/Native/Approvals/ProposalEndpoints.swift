import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/proposals`: changes of running experiments that wait for the approval of a second person (`--approvals 2`).
///
/// A proposal is the request as it was sent. On approval the server makes this request, provided that the definitions
/// have not changed since.
struct ProposalEndpoints {
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

    /// Returns a handler that responds 202 with a proposal if a change lacks a required approval.
    func holding(_ handle: @escaping Handler) -> Handler {
        { request, call in
            do {
                return try await handle(request, call)
            } catch let change as HeldChange {
                return try await propose(change, request, call)
            }
        }
    }

    private func propose(
        _ change: HeldChange, _ request: borrowing Request, _ call: Call
    ) async throws -> Response {
        let author = call.author(request)
        let number = UInt64.random(in: 1 << 40..<1 << 48)
        var proposal = Proposal(
            id: String(number, radix: 16), sdkKey: change.sdkKey, createdAt: clock.now(), author: author.name,
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

    /// Finds a waiting proposal, of any author, with the same request and the same state of definitions.
    private func waiting(like proposal: Proposal) async throws -> Proposal? {
        let all = try await store.read(.proposals(sdkKey: proposal.sdkKey))
        for other in all
        where other.status == .pending && other.basis == proposal.basis && other.method == proposal.method
            && other.target == proposal.target
        {
            // The list has no bodies, so the proposal is read by itself.
            if let found = try await store.read(.proposal(id: other.id)), found.status == .pending,
                found.body ?? [] == proposal.body ?? []
            {
                return found
            }
        }
        return nil
    }

    /// The last proposals of the project, newest first; `?status=` names one status.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["status", "limit"])
        let limit = try Request.pageLimit(query)
        let statuses = ["pending", "approved", "rejected", "outdated"]
        if let status = query["status"], !statuses.contains(status) {
            throw CoreError(
                .invalid, "`status` must be one of \(statuses.joined(separator: ", ")); got '\(status)'")
        }
        let project = try projects.project(named: request.sdkKey, for: call.access)
        let found = try await store.read(.proposals(sdkKey: project.sdkKey)).filter {
            query["status"] == nil || $0.statusName(in: project) == query["status"]
        }
        return .json([
            "proposals": .array(found.prefix(limit).map { describe($0) }),
            "approvals": .integer(call.admission.control.approvals),
        ])
    }

    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        .json(describe(try await find(request, call)))
    }

    /// Makes the change. Both the author of the proposal and the caller must be allowed to make it.
    func approve(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let proposal = try await find(request, call)
        try proposal.expectPending(in: projects.project(proposal.sdkKey))
        let author = call.author(request)
        guard call.admission.token != nil, !proposal.isOf(author) else {
            throw CoreError(
                .forbidden, "a second person must approve the proposal; '\(author.name)' has made it")
        }
        var fields = [("X-Request-Id", request.id.description), ("X-Optimizely-SDK-Key", proposal.sdkKey)]
        if let secret = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key")) {
            fields.append(("Authorization", "Bearer \(secret)"))
        }
        let made = await requests.response(
            to: LocalRequest(
                proposal.method, proposal.target, fields: fields, body: proposal.body ?? [], peer: request.peer),
            approving: Approval(of: proposal, by: author))
        guard made.status.code < 300 else {
            var refusal = Response(made.status, contentType: made.contentType, body: .bytes(made.body))
            refusal.fields = made.fields
            return refusal
        }
        let settled = try await find(request, call)
        guard settled.status == .approved else {
            throw CoreError(.conflict, "the change that the proposal '\(proposal.id)' asks for makes no difference")
        }
        return .json(describe(settled))
    }

    /// Rejects a proposal. Anyone may do so, including its author. The body is empty or `{"reason":TEXT}`.
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

    /// - Throws: 404 if there is no such proposal, 403 if the caller may not use its project.
    private func find(_ request: borrowing Request, _ call: Call) async throws -> Proposal {
        let id = request.parameter(0) ?? ""
        guard let proposal = try await store.read(.proposal(id: id)) else {
            throw CoreError(.notFound, "no proposal has the id '\(id.shortened(to: CoreError.longestQuote))'")
        }
        try call.access.check(proposal.sdkKey)
        return proposal
    }

    private func describe(_ proposal: Proposal) -> JSONValue {
        var request: JSONObject = JSONObject()
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

/// The waiting proposals of a project, which are shown with the elements that they change.
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
        let about = proposals.filter { proposal in
            let isRunning = Element.self == Experiment.self || Element.self == Flag.self
            return isRunning && proposal.experiments.contains(element.key.string)
                || (proposal.changes.array ?? []).contains { change in
                    change.object?["action"]?.string?.hasPrefix("\(Element.noun).") == true
                        && change.object?["target"]?.string == element.key.string
                }
        }
        guard !about.isEmpty, var object = description.object else { return description }
        object["proposals"] = .array(
            about.map {
                [
                    "id": .string($0.id), "author": .string($0.author), "created_at": .string($0.createdAt.rfc3339),
                ]
            })
        return .object(object)
    }
}
