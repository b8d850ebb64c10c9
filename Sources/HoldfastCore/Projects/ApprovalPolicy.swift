public import Bucketing
public import JSON
public import Storage

/// Whether a change of running experiments needs the approval of a second person.
public enum ApprovalPolicy: Sendable {
    case notNeeded
    case needed
    /// The change is that of a proposal, which takes effect only for the definitions that it was made for.
    case given(Approval)

    public var approval: Approval? { if case .given(let approval) = self { approval } else { nil } }

    /// Checks that the approved proposal is still to be decided, and that nothing has changed since it was made.
    ///
    /// - Throws: 409 otherwise.
    public func expectUnchanged(_ project: Project?, _ session: any StoreSession) async throws {
        guard let approval else { return }
        guard let stored = try await session.read(.proposal(id: approval.proposal.id)) else {
            throw CoreError(.conflict, "the proposal '\(approval.proposal.id)' is no longer kept")
        }
        try stored.expectPending(in: project)
    }

    /// Checks a change that would be stored next.
    ///
    /// - Parameter notes: returns what the audit log would have of it.
    /// - Throws: ``HeldChange`` if it needs an approval that it does not have.
    public func check(
        from project: Project?, to edited: Datafile, changing segments: [Segment] = [],
        _ notes: () -> [AuditNote]
    ) throws(HeldChange) {
        guard case .needed = self, let project else { return }
        let experiments = project.runningExperiments(changedBy: edited, segments)
        guard !experiments.isEmpty else { return }
        throw HeldChange(
            sdkKey: project.sdkKey, basis: project.basis, experiments: experiments.map(\.string),
            changes: .array(
                notes().map {
                    [
                        "action": .string($0.action.rawValue), "target": .string($0.target), "before": $0.before,
                        "after": $0.after,
                    ]
                }))
    }
}

/// A change of running experiments that needs the approval of a second person. Nothing was stored.
public struct HeldChange: Error {
    public let sdkKey: String
    /// Identifies the definitions that it would change.
    public let basis: String
    public let experiments: [String]
    /// See ``Proposal/changes``.
    public let changes: JSONValue
}

extension Proposal {
    /// The status for people: `outdated` if it can no longer be approved, because the definitions have changed.
    public func statusName(in project: Project?) -> String {
        switch status {
        case .approved: "approved"
        case .rejected: "rejected"
        case .pending: basis == project?.basis ? "pending" : "outdated"
        }
    }

    /// - Throws: 409 if the proposal has been decided, or the definitions have changed since.
    public func expectPending(in project: Project?) throws(CoreError) {
        guard let decision else {
            guard basis == project?.basis else {
                throw CoreError(
                    .conflict,
                    "the definitions of the project must be those that the proposal '\(id)' was made for; they have changed"
                        + " since: propose the change again")
            }
            return
        }
        throw CoreError(
            .conflict, "the proposal '\(id)' must be pending; '\(decision.author)' has \(statusName(in: project)) it")
    }
}

extension Project {
    /// Identifies what decides about the experiments: the datafile, and the segments that it uses.
    var basis: String {
        let segments = datafile.mentions.segments.sorted().compactMap { schema.segments[$0] }
        guard !segments.isEmpty else { return String(version) }
        let text = segments.map { "\($0.name.string)\n\($0.storedConditions)\n" }.joined()
        return "\(version)-\(String(Self.hash(Array(text.utf8)), radix: 16))"
    }

    /// Returns the keys of the running experiments that a change of definitions changes: themselves, whom they take, or
    /// what they measure.
    ///
    /// - Parameter segments: those to define.
    func runningExperiments(changedBy edited: Datafile, _ segments: [Segment]) -> [Identifier] {
        let running = datafile.experiments.filter {
            $0.isRunning && !$0.annotations.isDraft && !datafile.isDeliveryRule($0.id)
        }
        guard !running.isEmpty else { return [] }
        let changing = segments.filter { segment in
            schema.segments[segment.name].map { $0.conditions != segment.conditions } ?? false
        }
        let (before, after) = (DefinitionSources(datafile), DefinitionSources(edited))
        let changesHoldouts = before.holdouts != after.holdouts
        let inSegments = Set(changing.flatMap { datafile.keys(usingSegment: $0.name) })
        let changesHeldOut = datafile.holdouts.contains { inSegments.contains($0.key) }
        let definitions = definitions
        return running.filter { experiment in
            let metrics = definitions.experiments[experiment.key]?.details.metrics.all ?? []
            return changesHoldouts || changesHeldOut || inSegments.contains(experiment.key)
                || before.experiments[experiment.id] != after.experiments[experiment.id]
                || before.details?[experiment.id.string] != after.details?[experiment.id.string]
                || before.flags[experiment.id] != after.flags[experiment.id]
                || datafile.audience(of: experiment)
                    != edited.experiment(id: experiment.id).map { edited.audience(of: $0) }
                || datafile.groupRanges(of: experiment.id) != edited.groupRanges(of: experiment.id)
                || metrics.contains { before.metrics?[$0.string] != after.metrics?[$0.string] }
        }.map(\.key)
    }
}

/// What a datafile says of experiments, by id.
private struct DefinitionSources {
    var experiments: [Identifier: JSONValue] = [:]
    /// The flags that have an experiment.
    var flags: [Identifier: [JSONValue]] = [:]
    let holdouts: [JSONValue?]
    /// What SDKs do not know.
    let details: JSONObject?
    let metrics: JSONObject?

    init(_ datafile: Datafile) {
        let root = datafile.source.object ?? JSONObject()
        for owner in [root] + root.objects("groups") {
            for experiment in owner.objects("experiments") {
                experiments[experiment.identifier("id") ?? ""] = .object(experiment)
            }
        }
        for flag in root.objects("featureFlags") {
            for id in (flag["experimentIds"]?.array ?? []).compactMap(\.string) {
                flags[Identifier(id), default: []].append(.object(flag))
            }
        }
        holdouts = HoldoutDefinition.lists.map { root[$0] }
        let members = root[Annotations.member]?.object
        details = members?["experiments"]?.object
        metrics = members?["metrics"]?.object
    }
}

extension Datafile {
    /// The bucket values of a group that belong to an experiment.
    fileprivate func groupRanges(of id: Identifier) -> [Range<Int>] {
        guard let allocation = experiment(id: id)?.exclusionGroup?.trafficAllocation else { return [] }
        var start = 0
        return allocation.ranges.compactMap { range in
            defer { start = max(start, range.end) }
            return range.entityID == id && range.end > start ? start..<range.end : nil
        }
    }
}
