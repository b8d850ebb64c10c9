public import Chronology
public import JSON

/// A change of running experiments that waits for the approval of a second person: the request as it was sent, and the
/// changes that it would make. A stored proposal is immutable, except that it gets a decision once.
public struct Proposal: Sendable, Equatable {
    /// Databases store the raw value.
    public enum Status: Int64, Sendable {
        case pending = 0
        case approved = 1
        case rejected = 2
    }

    /// The decision, with its author and time.
    public struct Decision: Sendable, Equatable {
        public var author: String
        public var time: Instant
        public var reason: String?
    }

    public var id: String
    public var sdkKey: String
    public var createdAt: Instant
    public var status = Status.pending
    /// The name of the person who proposes the change.
    public var author: String
    /// Identifies the state of the definitions from which ``changes`` were computed. If this state has changed, the
    /// proposal can no longer be approved.
    public var basis: String
    /// The method of the request.
    public var method: String
    /// The path and query of the request.
    public var target: String
    /// The keys of the running experiments that the request changes.
    public var experiments: [String]
    /// The audit entries that the request would make, each with `action`, `target`, `before` and `after`.
    public var changes: JSONValue
    public var decision: Decision?
    /// The body of the request; `nil` if the proposal was read without it.
    public var body: [UInt8]?

    public init(
        id: String, sdkKey: String, createdAt: Instant, author: String, basis: String, method: String, target: String,
        experiments: [String], changes: JSONValue, body: [UInt8]
    ) {
        self.id = id
        self.sdkKey = sdkKey
        self.createdAt = createdAt
        self.author = author
        self.basis = basis
        self.method = method
        self.target = target
        self.experiments = experiments
        self.changes = changes
        self.body = body
    }

    /// Whether a person has made the proposal and therefore must not approve it. The case of names is ignored, because
    /// an identity provider may send the name of one person in different cases.
    public func isOf(_ person: Author) -> Bool { Self.folded(author) == Self.folded(person.name) }

    /// Folds the case of a name. Upper case comes first, so that `ß` equals `ss`.
    private static func folded(_ name: String) -> String { name.uppercased().lowercased() }

    /// The maximum number of proposals that are kept per project. Older proposals are deleted.
    public static let limit = 100
}

/// The approval of a proposal. It is recorded in the transaction of the proposed change.
public struct Approval: Sendable {
    public var proposal: Proposal
    /// The person who approves.
    public var author: Author

    public init(of proposal: Proposal, by author: Author) {
        self.proposal = proposal
        self.author = author
    }
}

// MARK: Changes

extension SharedRecords {
    /// Whether a change may be made: either it needs no approval, or its proposal has not been decided yet.
    func admits(_ approval: Approval?) -> Bool { approval == nil || proposal?.status == .pending }

    /// Records that a proposal was approved, in the transaction of its change. Called after ``admits(_:)``.
    mutating func settle(_ approval: Approval?, at now: Instant) {
        guard let approval else { return }
        decide(.approved, .proposalApprove, reason: nil, by: approval.author, at: now)
    }

    /// Rejects the proposal that was read.
    ///
    /// - Returns: `false` if there is no proposal, or if it has been decided already.
    fileprivate mutating func reject(reason: String?, by author: Author, at now: Instant) -> Bool {
        guard proposal?.status == .pending else { return false }
        decide(.rejected, .proposalReject, reason: reason, by: author, at: now)
        return true
    }

    /// Stores a decision of the proposal that was read, and records the decision in the audit log.
    private mutating func decide(
        _ status: Proposal.Status, _ action: AuditAction, reason: String?, by author: Author, at now: Instant
    ) {
        guard var decided = proposal else { return }
        decided.status = status
        decided.decision = Proposal.Decision(author: author.name, time: now, reason: reason)
        write(.updateProposal(decided))
        record(AuditNote(action, of: decided.id, after: decided.summary, in: decided.sdkKey), by: author)
    }
}

extension Approval {
    /// The part of ``SharedRecords`` that a change with this approval needs.
    var part: SharedRecords.Part { .proposal(id: proposal.id) }
}

extension SharedChange<Void> {
    /// Stores a proposal, and deletes the oldest proposals of its project beyond ``Proposal/limit``.
    public static func propose(_ proposal: Proposal, by author: Author) -> Self {
        Self(bytes: WaitingBytes.ofChange + (proposal.body?.count ?? 0)) { records, _ in
            records.write(.insertProposal(proposal))
            records.record(
                AuditNote(.proposalPut, of: proposal.id, after: proposal.summary, in: proposal.sdkKey), by: author)
        }
    }
}

extension SharedChange<Bool> {
    /// Rejects a proposal. The result is `false` if the proposal does not exist, or has been decided already.
    public static func reject(proposal id: String, reason: String?, by author: Author) -> Self {
        Self(.proposal(id: id)) { records, context in
            records.reject(reason: reason, by: author, at: context.now)
        }
    }
}

// MARK: Reading

extension StoreQuery<[Proposal]> {
    /// Reads the proposals of a project, newest first, without their bodies.
    public static func proposals(sdkKey: String) -> Self {
        Self(.proposals(sdkKey: sdkKey)) { _ in
            let sql = """
                SELECT \(Proposal.columnsWithoutBody) FROM proposals WHERE sdk_key = $1
                ORDER BY created_at DESC, id DESC
                """
            return .all(SQLQuery("proposals", sql, .text(sdkKey))) { Proposal($0) }
        }
    }
}

extension StoreQuery<Proposal?> {
    /// Reads a proposal with its body; `nil` if there is none.
    public static func proposal(id: String) -> Self {
        Self(.proposal(id: id)) { _ in
            let sql = "SELECT \(StoredTable.proposals.columnList) FROM proposals WHERE id = $1"
            var found: Proposal?
            return Reading([(SQLQuery("proposal", sql, .text(id)), { found = Proposal($0) })]) { .value(found) }
        }
    }
}

extension SharedRecords {
    /// Finds a proposal, without its body.
    package static func find(proposal id: String) -> SQLQuery {
        SQLQuery(
            "find_proposal", "SELECT \(Proposal.columnsWithoutBody) FROM proposals WHERE id = $1", .text(id))
    }

    /// Stores the decision of a proposal.
    package static func update(_ proposal: Proposal) -> SQLQuery {
        SQLQuery(
            "update_proposal", "UPDATE proposals SET status = $2, content = $3 WHERE id = $1", .text(proposal.id),
            .integer(proposal.status.rawValue), .text(proposal.content))
    }

    /// Deletes the oldest proposals of a project beyond ``Proposal/limit``.
    package static func pruneProposals(sdkKey: String) -> SQLQuery {
        SQLQuery(
            "prune_proposals",
            """
            DELETE FROM proposals WHERE sdk_key = $1 AND id NOT IN (
                SELECT id FROM proposals WHERE sdk_key = $1 ORDER BY created_at DESC, id DESC LIMIT \(Proposal.limit))
            """, .text(sdkKey))
    }
}

extension Proposal {
    /// - Returns: `nil` for a proposal of a newer release, which is skipped as if it did not exist.
    package init?(_ row: any Row) {
        guard let status = Status(rawValue: row.bounded(3)),
            let content = (try? JSONParser().parse(row.text(4)))?.object, let author = content["author"]?.string,
            let basis = content["basis"]?.string, let method = content["method"]?.string,
            let target = content["target"]?.string
        else { return nil }
        self.init(
            id: row.text(0), sdkKey: row.text(1), createdAt: row.instant(2), author: author, basis: basis,
            method: method, target: target, experiments: (content["experiments"]?.array ?? []).compactMap(\.string),
            changes: content["changes"] ?? [], body: [])
        self.status = status
        body = row.optionalBytes(5)
        guard let decision = content["decision"]?.object, let name = decision["author"]?.string,
            let time = decision["time"]?.instant
        else { return }
        self.decision = Decision(author: name, time: time, reason: decision["reason"]?.string)
    }

    package var values: [SQLValue] {
        [
            .text(id), .text(sdkKey), .instant(createdAt), .integer(status.rawValue), .text(content),
            .bytes(body ?? []),
        ]
    }

    /// The columns in the order of ``init(_:)``, with NULL in place of the body, which may have megabytes.
    fileprivate static let columnsWithoutBody = "id, sdk_key, created_at, status, content, NULL"

    /// The column `content`: the ``summary`` with further members, as JSON.
    fileprivate var content: String {
        var content = summary.object ?? JSONObject()
        content["author"] = .string(author)
        content["basis"] = .string(basis)
        content["changes"] = changes
        if let decision {
            content["decision"] = [
                "author": .string(decision.author), "time": .instant(decision.time),
                "reason": decision.reason.map { .string($0) } ?? .null,
            ]
        }
        return String(decoding: JSONValue.object(content).encoded(), as: UTF8.self)
    }

    /// The proposal as the audit log shows it.
    fileprivate var summary: JSONValue {
        var summary = JSONObject()
        summary["sdk_key"] = .string(sdkKey)
        summary["proposed_by"] = .string(author)
        summary["method"] = .string(method)
        summary["target"] = .string(target)
        summary["experiments"] = .array(experiments.map { .string($0) })
        if let reason = decision?.reason { summary["reason"] = .string(reason) }
        return .object(summary)
    }
}
