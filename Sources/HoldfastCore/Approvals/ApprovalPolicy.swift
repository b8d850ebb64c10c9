public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Whether a change of running experiments needs the approval of a second person.
public enum ApprovalPolicy: Sendable {
    case notNeeded
    case needed
    /// The change is an approved proposal. It is made only if it is still exactly what was proposed.
    case given(Approval)

    public var approval: Approval? { if case .given(let approval) = self { approval } else { nil } }

    /// Checks that the approved proposal has not been decided yet, and that the definitions it changes have not
    /// changed.
    ///
    /// - Throws: 409 otherwise.
    public func expectUnchanged(_ project: Project?, _ session: any StoreSession) async throws {
        guard let approval else { return }
        guard let stored = try await session.read(.proposal(id: approval.proposal.id)) else {
            throw CoreError(.conflict, "the proposal '\(approval.proposal.id)' is no longer kept")
        }
        try stored.expectPending(in: project)
    }

    /// Checks a change before it is stored. A change that only stops running experiments needs no approval, because a
    /// single person on call must be able to make it.
    ///
    /// - Parameter notes: the audit entries that the change would make.
    /// - Returns: the notes, marked if the change was exempt.
    /// - Throws: ``HeldChange`` if the change lacks a required approval; 409 if it differs from the approved proposal.
    public func check(
        from project: Project?, to edited: CompiledDefinitions, changing segments: [Segment] = [], _ notes: [AuditNote]
    ) throws -> [AuditNote] {
        if case .notNeeded = self { return notes }
        guard let project, approval.map({ $0.proposal.sdkKey == project.sdkKey }) ?? true else { return notes }
        let experiments = project.runningExperiments(changedBy: edited, segments).map(\.string)
        guard approval != nil || !experiments.isEmpty else { return notes }
        if approval == nil, segments.isEmpty, edited.definitions.onlyStops(project.definitions) {
            return notes.map(\.exempt)
        }
        let changes = JSONValue.array(
            notes.map { note in
                let shown = note.isOfDatafile ? DatafileDifferences(from: project, to: edited.definitions) : nil
                return [
                    "action": .string(note.action.rawValue), "target": .string(note.target),
                    "before": shown?.before ?? note.before, "after": shown?.after ?? note.after,
                ]
            })
        let basis = project.basis(of: experiments, changes)
        guard let approval else {
            throw HeldChange(sdkKey: project.sdkKey, basis: basis, experiments: experiments, changes: changes)
        }
        // If the definitions have changed since the proposal, the request may change more than was approved.
        guard basis == approval.proposal.basis else { throw approval.proposal.outdated }
        return notes
    }

    /// Checks that requests which name no project may mean another one than the default so far.
    ///
    /// - Parameter changesMore: whether the request also changes how long assignments last.
    /// - Returns: whether the change is what was approved.
    /// - Throws: ``HeldChange`` if the former default has running experiments; 409 if the change is not what was approved.
    public func checkDefault(_ sdkKey: String, insteadOf project: Project?, changesMore: Bool) throws -> Bool {
        if case .notNeeded = self { return false }
        guard let project else { return false }
        let experiments = project.datafile.experiments.filter(project.countsAsRunning).map(\.key.string)
        guard approval != nil || !experiments.isEmpty else { return false }
        guard !changesMore else {
            throw CoreError(
                .conflict, "`default` must be changed by a request of its own, because it needs an approval")
        }
        let changes: JSONValue = [
            [
                "action": .string(AuditAction.projectPut.rawValue), "target": .string(sdkKey),
                "before": ["default": .string(project.sdkKey)], "after": ["default": .string(sdkKey)],
            ]
        ]
        let basis = project.basis(of: experiments, changes)
        guard let approval else {
            throw HeldChange(sdkKey: project.sdkKey, basis: basis, experiments: experiments, changes: changes)
        }
        guard basis == approval.proposal.basis else { throw approval.proposal.outdated }
        return true
    }

    /// Checks that an experiment may take what users did elsewhere, which counts in its results at once.
    ///
    /// - Throws: 409 if changes of the experiment need an approval. A proposal has one request, and an import several.
    public func checkImport(into experiment: Experiment, of project: Project) throws(CoreError) {
        if case .notNeeded = self { return }
        guard project.countsAsRunning(experiment) else { return }
        throw CoreError(
            .conflict,
            "where a second person must approve changes of running experiments, an experiment must not have run to take an "
                + "import; '\(experiment.key)' is \(ExperimentStatus.name(of: experiment.status))")
    }
}

extension AuditNote {
    /// Whether it is about a datafile as a whole, and does not say what of it changes.
    fileprivate var isOfDatafile: Bool { action == .datafilePut && before.isNull && after.isNull }

    /// The note of a change that would have needed an approval if it did more than to stop.
    fileprivate var exempt: AuditNote {
        guard var object = after.object else { return self }
        var note = self
        object["approval"] = "exempt"
        note.after = .object(object)
        return note
    }
}

/// A change of running experiments that needs the approval of a second person. Nothing was stored.
public struct HeldChange: Error {
    public let sdkKey: String
    /// See ``Proposal/basis``.
    public let basis: String
    public let experiments: [String]
    /// See ``Proposal/changes``.
    public let changes: JSONValue
}

extension Proposal {
    /// The status as the API shows it: `outdated` if the proposal can no longer be approved, because the definitions
    /// that it changes have changed.
    public func statusName(in project: Project?) -> String {
        switch status {
        case .approved: "approved"
        case .rejected: "rejected"
        case .pending: isUpToDate(in: project) ? "pending" : "outdated"
        }
    }

    /// - Throws: 409 if the proposal has been decided, or if the definitions that it changes have changed since.
    public func expectPending(in project: Project?) throws(CoreError) {
        if let decision {
            throw CoreError(
                .conflict,
                "the proposal '\(id)' must be pending; '\(decision.author)' has \(statusName(in: project)) it")
        }
        guard isUpToDate(in: project) else { throw outdated }
    }

    private func isUpToDate(in project: Project?) -> Bool { basis == project?.basis(of: experiments, changes) }

    fileprivate var outdated: CoreError {
        CoreError(
            .conflict,
            "what the proposal '\(id)' changes must be as it was when the proposal was made; it has changed since: propose "
                + "the change again")
    }
}

extension Project {
    /// Returns a value that identifies the current state of all definitions on which a change and its preview are
    /// based: the definitions that it changes, and for running experiments among them also their flags, groups and
    /// metrics, and the segments and holdouts that determine their users.
    ///
    /// - Parameter changes: see ``Proposal/changes``.
    func basis(of experiments: [String], _ changes: JSONValue) -> String {
        let definitions = definitions
        var keys = Set(experiments.map { Identifier($0) })
        var segments: Set<Identifier> = []
        var parts: [JSONValue] = experiments.sorted().map { .string($0) }
        for change in (changes.array ?? []).compactMap(\.object) {
            let (action, target) = (change["action"]?.string ?? "", change.identifier("target") ?? "")
            parts += [.string(action), JSONValue(target)]
            switch action.prefix(while: { $0 != "." }) {
            case "experiment": keys.insert(target)
            case "flag":
                parts += [description(of: datafile.flag(key: target)), versionOfFlag(target)]
                if let flag = definitions.flags[target] { keys.formUnion(definitions.experiments(of: flag).map(\.key)) }
            case "metric": parts.append(definitions.metrics[target].map { .object($0.json) } ?? .null)
            case "segment": segments.insert(target)
            // The whole datafile is identified by its version. Holdouts are added below.
            case "datafile": parts.append(.integer(version))
            default: break
            }
        }
        for key in keys.sorted() {
            guard let experiment = datafile.experiment(key: key) else { continue }
            parts.append(description(of: experiment))
            for range in datafile.groupRanges(of: experiment.id) {
                parts += [.integer(Int64(range.lowerBound)), .integer(Int64(range.upperBound))]
            }
            parts += definitions.flags(ofExperiment: experiment.id).map { description(of: datafile.flag(key: $0.key)) }
            parts += definitions.owners(of: experiment.id).map { versionOfFlag($0.key) }
            for metric in definitions.experiments[key]?.details.metrics.all ?? [] {
                parts.append(definitions.metrics[metric].map { .object($0.json) } ?? .null)
            }
        }
        keys.formUnion(datafile.holdouts.map(\.key))
        segments.formUnion(
            datafile.mentions.segments.filter { !keys.isDisjoint(with: datafile.keys(usingSegment: $0)) })
        if let lifetime = datafile.assignmentLifetime { parts.append(.string(lifetime.text)) }
        parts += definitions.holdoutLists.map { $0 ?? .null }
        parts += segments.sorted().map { schema.segments[$0]?.conditions ?? .null }
        return String(Self.hash(JSONValue.array(parts).encoded()), radix: 16)
    }

    /// Returns what increases with each edit of the flag or of its experiments, so that one that was changed and changed back is
    /// another.
    private func versionOfFlag(_ key: Identifier) -> JSONValue {
        definitions.flags[key]?.version.map { .integer($0) } ?? .null
    }

    /// Returns the element as `GET` shows it, without the members that change with every edit of the project; null if
    /// there is none.
    private func description(of element: (some DefinedElement)?) -> JSONValue {
        guard var object = element?.description(in: self).object else { return .null }
        (object["revision"], object["version"]) = (nil, nil)
        return .object(object)
    }
}

extension Datafile {
    /// The bucket values of a group that belong to an experiment.
    func groupRanges(of id: Identifier) -> [Range<Int>] {
        guard let allocation = experiment(id: id)?.exclusionGroup?.trafficAllocation else { return [] }
        var start = 0
        return allocation.ranges.compactMap { range in
            defer { start = max(start, range.end) }
            return range.entityID == id && range.end > start ? start..<range.end : nil
        }
    }
}
