public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Whether changes of running experiments need the approval of a second person.
///
/// A change that needs one is not stored. It throws ``HeldChange``, and its request is kept as a ``Proposal``. Once a
/// second person has approved the proposal, the request is repeated with ``given(_:)``.
public enum ApprovalPolicy: Sendable {
    /// Any change may be made.
    case notNeeded
    /// A change of running experiments must be approved first.
    case needed
    /// The change is an approved proposal. It is made only if it is still exactly what was proposed.
    case given(Approval)

    /// The approval of the change; `nil` if it has none.
    public var approval: Approval? { if case .given(let approval) = self { approval } else { nil } }

    /// Checks that the approved proposal is still pending in the store, and that the definitions on which it is based
    /// are as they were when it was made. Without an approval there is nothing to check.
    ///
    /// - Throws: 409 if the proposal is gone, decided or outdated.
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
    /// - Parameters:
    ///   - project: the project before the change; `nil` for a new one, which has no running experiments.
    ///   - segments: the segments that the change defines.
    ///   - notes: the audit entries that the change would make.
    /// - Returns: the notes, marked if the change was exempt.
    /// - Throws: ``HeldChange`` if the change lacks a required approval; 409 if it differs from the approved proposal.
    public func check(
        from project: Project?, to edited: CompiledDefinitions, changing segments: [Segment] = [], _ notes: [AuditNote]
    ) throws -> [AuditNote] {
        if case .notNeeded = self { return notes }
        guard let project else { return notes }
        let experiments = project.runningExperiments(changedBy: edited, segments).map(\.string)
        guard approval != nil || !experiments.isEmpty else { return notes }
        if approval == nil, segments.isEmpty, edited.definitions.onlyStops(project.definitions) {
            return notes.map(\.exempt)
        }
        try expectApproval(of: Self.changes(notes, from: project, to: edited), to: experiments, of: project)
        return notes
    }

    /// Returns the ``Proposal/changes``, which the second person sees.
    private static func changes(
        _ notes: [AuditNote], from project: Project, to edited: CompiledDefinitions
    ) -> JSONValue {
        .array(
            notes.map { note in
                let differences = note.isOfDatafile ? DatafileDifferences(from: project, to: edited.definitions) : nil
                return [
                    "action": .string(note.action.rawValue), "target": .string(note.target),
                    "before": differences?.before ?? note.before, "after": differences?.after ?? note.after,
                ]
            })
    }

    /// Checks a change of a segment, which applies to all projects, before it is stored.
    ///
    /// - Parameter former: the former conditions; `nil` for a new segment.
    /// - Throws: as ``check(from:to:changing:_:)`` and ``expectNoOther(than:in:changing:)`` do.
    public func check(_ segment: Segment, replacing former: JSONValue?, in projects: [Project]) throws {
        if case .notNeeded = self { return }
        let ordered = projects.sorted { $0.sdkKey < $1.sdkKey }
        let approved = approval.flatMap { approval in ordered.first { $0.sdkKey == approval.proposal.sdkKey } }
        guard let changed = approved ?? ordered.first(where: { $0.changesRunningExperiments(by: [segment]) }) else {
            return
        }
        try expectNoOther(than: changed, in: ordered, changing: [segment])
        let note = AuditNote(segment, replacing: former)
        _ = try check(from: changed, to: changed.compiled, changing: [segment], [note])
    }

    /// Checks that a change of segments affects running experiments of one project only. An approval is for one
    /// project, so the second person would not see the experiments of another.
    ///
    /// - Parameters:
    ///   - project: the project whose running experiments may be affected.
    ///   - projects: the other projects.
    ///   - segments: the segments that the change defines.
    /// - Throws: 409 if running experiments of another project are affected.
    public func expectNoOther(
        than project: Project?, in projects: some Sequence<Project>, changing segments: [Segment]
    ) throws(CoreError) {
        if case .notNeeded = self { return }
        guard !segments.isEmpty else { return }
        let others = projects.filter { other in
            other.sdkKey != project?.sdkKey && other.changesRunningExperiments(by: segments)
        }
        guard !others.isEmpty else { return }
        let names = others.map { "'\($0.sdkKey)'" }.sorted().joined(separator: ", ")
        throw CoreError(
            .conflict,
            "a change of segments must change running experiments of one project, because an approval is of one; it also "
                + "changes those of \(names): let each project use a segment of its own")
    }

    /// Checks that a change has an approval, and that the definitions are as they were when the proposal was made.
    /// Otherwise the same request might change more than the second person has seen.
    ///
    /// - Throws: ``HeldChange`` if the change has no approval; 409 if it differs from the approved one.
    private func expectApproval(of changes: JSONValue, to experiments: [String], of project: Project) throws {
        let basis = project.basis(of: experiments, changes)
        guard let approval else {
            throw HeldChange(sdkKey: project.sdkKey, basis: basis, experiments: experiments, changes: changes)
        }
        guard basis == approval.proposal.basis else { throw approval.proposal.outdated }
    }

    /// Checks that another project may become the default project, to which requests that name no project refer.
    ///
    /// - Parameters:
    ///   - sdkKey: the SDK key of the new default project.
    ///   - project: the former default project; `nil` if there is none.
    ///   - changesMore: whether the request also changes the assignment lifetime of the project.
    /// - Returns: whether the change has an approval; false if it needs none.
    /// - Throws: ``HeldChange`` if the former default has running experiments; 409 if the change is not what was
    ///   approved.
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
        try expectApproval(of: changes, to: experiments, of: project)
        return true
    }

    /// Checks that exposures and events from elsewhere may be imported into an experiment, which changes its results at
    /// once.
    ///
    /// - Throws: 409 if changes of the experiment need an approval. An import cannot be approved, because it consists
    ///   of several requests, and a proposal has one.
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
    /// Whether the note is about the upload of a whole datafile. Such a note does not have the datafiles.
    fileprivate var isOfDatafile: Bool { action == .datafilePut && before.isNull && after.isNull }

    /// The note of a change that needed no approval, because it only stops running experiments.
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
    /// The keys of the running experiments that the change affects.
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

    /// Whether the definitions on which the proposal is based are as they were when it was made.
    private func isUpToDate(in project: Project?) -> Bool { basis == project?.basis(of: experiments, changes) }

    /// The error that refuses the proposal because it is not up to date.
    fileprivate var outdated: CoreError {
        CoreError(
            .conflict,
            "what the proposal '\(id)' changes must be as it was when the proposal was made; it has changed since: propose "
                + "the change again")
    }
}
