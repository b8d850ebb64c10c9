public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Whether a change of running experiments needs the approval of a second person.
public enum ApprovalPolicy: Sendable {
    case notNeeded
    case needed
    /// The change is that of a proposal, which takes effect only if it is still exactly what was proposed.
    case given(Approval)

    public var approval: Approval? { if case .given(let approval) = self { approval } else { nil } }

    /// Checks that the approved proposal is still to be decided, and that what it changes is as it was.
    ///
    /// - Throws: 409 otherwise.
    public func expectUnchanged(_ project: Project?, _ session: any StoreSession) async throws {
        guard let approval else { return }
        guard let stored = try await session.read(.proposal(id: approval.proposal.id)) else {
            throw CoreError(.conflict, "the proposal '\(approval.proposal.id)' is no longer kept")
        }
        try stored.expectPending(in: project)
    }

    /// Checks a change that would be stored next. One that only stops what runs needs no approval: whoever is on call must
    /// be able to.
    ///
    /// - Parameter notes: what the audit log would have of it.
    /// - Returns: the notes, which tell of an exemption.
    /// - Throws: ``HeldChange`` if it needs an approval that it does not have; 409 if it is not what was approved.
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
            notes.map {
                [
                    "action": .string($0.action.rawValue), "target": .string($0.target), "before": $0.before,
                    "after": $0.after,
                ]
            })
        let basis = project.basis(of: experiments, changes)
        guard let approval else {
            throw HeldChange(sdkKey: project.sdkKey, basis: basis, experiments: experiments, changes: changes)
        }
        // The request might change more than it did, if that has changed meanwhile.
        guard basis == approval.proposal.basis else { throw approval.proposal.outdated }
        return notes
    }
}

extension AuditNote {
    /// The note of a change that would have needed an approval if it did more than to stop.
    fileprivate var exempt: AuditNote {
        guard var object = after.object else { return self }
        var note = self
        object["approval"] = "exempt"
        note.after = .object(object)
        return note
    }
}

extension ProjectDefinitions {
    /// Whether these definitions differ from former ones in nothing else than what was stopped: experiments paused,
    /// enrollment closed, ramps ended, flags turned off.
    fileprivate func onlyStops(_ former: ProjectDefinitions) -> Bool {
        var expected = former
        for experiment in experiments {
            guard let former = expected.experiments[experiment.key] else { return false }
            expected.experiments.set(former.stopped(as: experiment))
        }
        for flag in flags {
            guard var former = expected.flags[flag.key] else { return false }
            former.isEnabled = former.isEnabled && flag.isEnabled
            (former.source, former.version) = (flag.source, flag.version)
            expected.flags.set(former)
        }
        // What is generated from experiments and flags follows them.
        let generated = Set(flags.lazy.filter { $0.content.isOfAPI }.map { Identifier($0.rolloutID) })
        return expected.experiments == experiments && expected.flags == flags && expected.metrics == metrics
            && expected.assignmentLifetime == assignmentLifetime
            && expected.others(without: generated) == others(without: generated)
    }
}

extension FlagDefinition.Content {
    /// Whether the deliveries are generated.
    fileprivate var isOfAPI: Bool { if case .datafile = self { false } else { true } }
}

extension ExperimentDefinition {
    /// Returns the experiment as it would be if nothing else had been done to it than to stop it as another one is.
    fileprivate func stopped(as other: ExperimentDefinition) -> ExperimentDefinition {
        var stopped = self
        let running = ExperimentStatus.running.rawValue
        if !isDraft, status == running, other.status == ExperimentStatus.paused.rawValue {
            stopped.status = other.status
        }
        stopped.isClosed = isClosed || other.isClosed
        if let ended = other.details.ramp?.state, ended.status == .ended, let ramp = details.ramp,
            ramp.isPending || ramp.state.status == .held
        {
            stopped.details.ramp?.state = ended
        }
        stopped.source = other.source
        for (index, variation) in other.variations.enumerated() where stopped.variations.indices.contains(index) {
            stopped.variations[index].source = variation.source
        }
        return stopped
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
    /// The status for people: `outdated` if it can no longer be approved, because what it changes has changed.
    public func statusName(in project: Project?) -> String {
        switch status {
        case .approved: "approved"
        case .rejected: "rejected"
        case .pending: isUpToDate(in: project) ? "pending" : "outdated"
        }
    }

    /// - Throws: 409 if the proposal has been decided, or what it changes has changed since.
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
    /// Identifies what a change is about, and what its preview rests on, as it is now: the definitions that it changes, and
    /// of the running experiments among them also their flags, their groups, what they measure, and the segments and
    /// holdouts that decide whom they take.
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
                parts.append(description(of: datafile.flag(key: target)))
                if let flag = definitions.flags[target] { keys.formUnion(definitions.experiments(of: flag).map(\.key)) }
            case "metric": parts.append(definitions.metrics[target].map { .object($0.json) } ?? .null)
            case "segment": segments.insert(target)
            // A whole datafile. Holdouts follow.
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

    /// Returns what `GET` presents, without what any change of the project raises; null for none.
    private func description(of element: (some DefinedElement)?) -> JSONValue {
        guard var object = element?.description(in: self).object else { return .null }
        (object["revision"], object["version"]) = (nil, nil)
        return .object(object)
    }

    /// Returns the keys of the running experiments that a change of definitions changes: themselves, whom they take, or
    /// what they measure. One that was paused, or whose flag was turned off, counts as running until it is concluded or
    /// archived: its users come back.
    ///
    /// - Parameter segments: those to define.
    func runningExperiments(changedBy compiled: CompiledDefinitions, _ segments: [Segment]) -> [Identifier] {
        let (definitions, next, edited) = (definitions, compiled.definitions, compiled.datafile)
        let running = datafile.experiments.filter { experiment in
            guard !experiment.annotations.isDraft, !datafile.isDeliveryRule(experiment.id) else { return false }
            return experiment.isRunning
                || experiment.status == ExperimentStatus.paused.rawValue
                    && definitions.experiments[experiment.key]?.hasNeverRun == false
        }
        guard !running.isEmpty else { return [] }
        let changing = segments.filter { segment in
            schema.segments[segment.name].map { $0.conditions != segment.conditions } ?? false
        }
        let changesHoldouts = definitions.holdoutLists != next.holdoutLists
        let changesLifetime = datafile.assignmentLifetime != edited.assignmentLifetime
        let inSegments = Set(changing.flatMap { datafile.keys(usingSegment: $0.name) })
        let changesHeldOut = datafile.holdouts.contains { inSegments.contains($0.key) }
        return running.filter { experiment in
            let (before, after) = (definitions.experiment(id: experiment.id), next.experiment(id: experiment.id))
            let metrics = definitions.experiments[experiment.key]?.details.metrics.all ?? []
            return changesHoldouts || changesHeldOut || changesLifetime || inSegments.contains(experiment.key)
                || before?.source != after?.source || before?.details != after?.details
                || before?.conclusion != after?.conclusion
                || definitions.owners(of: experiment.id).map(\.source) != next.owners(of: experiment.id).map(\.source)
                || datafile.audience(of: experiment)
                    != edited.experiment(id: experiment.id).map { edited.audience(of: $0) }
                || datafile.groupRanges(of: experiment.id) != edited.groupRanges(of: experiment.id)
                || metrics.contains { definitions.metrics[$0] != next.metrics[$0] }
        }.map(\.key)
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
