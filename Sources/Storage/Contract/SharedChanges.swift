public import Bucketing

// The functions that create ``SharedChange``s, by topic. Changes of series, proposals, webhooks, looks, last uses,
// imports and the store's generation are in the files of these topics.

// MARK: Projects

extension SharedChange<StoredDatafile?> {
    /// Activates a datafile and records the change in the audit log. The result is the stored datafile; `nil` if the
    /// change was refused: because the active or the newest version is not the expected one, because the project is
    /// missing, or for one of the reasons given for `schema` and `approval`. Nothing was stored then.
    ///
    /// - Parameters:
    ///   - allocations: the allocations of the datafile's experiments; see ``AllocationRules/allocations(in:since:)``.
    ///   - statuses: the statuses of the datafile's experiments; see ``StatusRules/statuses(in:since:)``.
    ///   - series: the series that the experiments' metrics need, by experiment.
    ///   - replacing: the version that must be active, so that no concurrent edit is lost. 0 means that no datafile may
    ///     be active, and `nil` accepts any version.
    ///   - newest: the version that must be the newest of all projects, because the ids of new experiments were
    ///     compared with the ids in other projects; `nil` to accept any.
    ///   - freezing: the experiments that the datafile concludes. Their totals are frozen in the same transaction, so
    ///     that no experiment is concluded without frozen totals.
    ///   - makesProject: whether the datafile may create a project if others exist already. The first project is always
    ///     created by its datafile.
    ///   - schema: attributes, segments and webhooks to define together with the datafile. The change is refused if an
    ///     attribute has another type, or if a webhook was changed meanwhile.
    ///   - approval: the approval of the proposal that this change carries out; `nil` if there is none. The change is
    ///     refused if the proposal has been decided already.
    ///   - notes: the audit entries. The versions and revisions before and after are added to each of them.
    public static func putDatafile(
        _ datafile: DatafileWrite, sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        statuses: [Identifier: String], series: [Identifier: [SeriesDefinition]] = [:], replacing: Int64?,
        among newest: Int64? = nil,
        freezing: [ResultsFreeze] = [], makesProject: Bool, schema: SchemaChange = SchemaChange(),
        approval: Approval? = nil, notes: [AuditNote],
        by author: Author
    ) -> Self {
        // The datafile gets the time of the transaction, `context.now`. The time of the submission would be too early:
        // assignments between the submission and the transaction were made with the former datafile.
        Self(
            .projects, .activeDatafile(sdkKey: sdkKey),
            .latestPeriods(sdkKey: sdkKey, experimentIDs: Set(allocations.keys).union(statuses.keys)), .series,
            and: freezing.map { .tallies(experimentID: $0.experimentID) } + schema.parts
                + (approval.map { [$0.part] } ?? []),
            bytes: WaitingBytes.ofChange + datafile.bytes
        ) { records, context in
            let former = records.activeDatafile
            if let replacing, former?.version ?? 0 != replacing { return nil }
            if let newest, records.newestDatafile != newest { return nil }
            let activation = ProjectRules.activate(
                sdkKey, makesProject: makesProject, among: records.projects, at: context.now)
            if case .refused = activation { return nil }
            guard records.admits(approval), records.define(schema, by: author) else { return nil }
            records.settle(approval, at: context.now)
            if case .new(let record) = activation { records.write(.putProject(record)) }
            let stored = StoredDatafile(
                version: records.newestDatafile + 1, sdkKey: sdkKey, revision: revision, body: datafile.body,
                storedAt: context.now, author: author.name)
            records.write(.insertDatafile(stored, datafile.written))
            records.beginPeriods(of: stored, allocations, statuses)
            records.freeze(freezing)
            records.track(series, sdkKey: sdkKey, at: context.now)
            for note in notes {
                records.record(
                    note.activating(stored, replacing: former, approvedBy: approval?.author.name), by: author)
            }
            return stored
        }
    }
}

extension SharedRecords {
    /// Stores the allocation periods and status periods that a datafile begins.
    fileprivate mutating func beginPeriods(
        of datafile: StoredDatafile, _ allocations: [Identifier: TrafficAllocation], _ statuses: [Identifier: String]
    ) {
        let periods = AllocationRules.periods(begunBy: datafile, allocations, after: latestPeriods)
        if !periods.isEmpty { write(.insertPeriods(periods)) }
        let statusPeriods = StatusRules.periods(begunBy: datafile, statuses, after: latestStatuses)
        if !statusPeriods.isEmpty { write(.insertStatuses(statusPeriods)) }
    }

    /// Stores the present totals of experiments permanently. Their tallies must have been read.
    fileprivate mutating func freeze(_ freezes: [ResultsFreeze]) {
        for freeze in freezes {
            let tallies = tallies[freeze.experimentID] ?? TallySnapshot()
            write(.insertFrozenResults(tallies.rows(freeze)))
        }
    }
}

extension SharedChange<ProjectSettingsResult> {
    /// Creates or changes a project by ``ProjectRules`` and records the change in the audit log.
    ///
    /// - Parameters:
    ///   - datafile: the first datafile of a new project, with the revision `0`; ignored if the project exists.
    ///   - approval: the approval of the proposal that this change carries out; `nil` if there is none. If the proposal
    ///     has been decided already, nothing changes.
    public static func putProject(
        _ change: ProjectSettings, datafile: [UInt8], approval: Approval? = nil, by author: Author
    ) -> Self {
        Self(.projects, and: approval.map { [$0.part] } ?? []) { records, context in
            if !records.admits(approval), let known = records.projects.first(where: { $0.sdkKey == change.sdkKey }) {
                return .unchanged(known)
            }
            let result = ProjectRules.apply(change, among: records.projects, at: context.now)
            let former = records.projects.first { $0.sdkKey == change.sdkKey }
            guard let note = AuditNote(result, replacing: former) else { return result }
            records.settle(approval, at: context.now)
            records.write(.putProject(result.record))
            if case .created = result {
                let stored = StoredDatafile(
                    version: records.newestDatafile + 1, sdkKey: change.sdkKey, revision: "0", body: .whole(datafile),
                    storedAt: context.now, author: author.name)
                records.write(.insertDatafile(stored, .whole(datafile)))
            }
            records.record(note, by: author)
            return result
        }
    }
}

extension SharedChange<ProjectRemovalResult> {
    /// Deletes a project with all its data (``SharedRecords/Write/deleteProject(sdkKey:)``), and records the deletion
    /// in the audit log.
    ///
    /// - Parameter version: the version of the active datafile, which the caller has found to be empty. A newer
    ///   datafile may have definitions, so the project is then not deleted.
    public static func removeProject(sdkKey: String, expecting version: Int64, by author: Author) -> Self {
        Self(.projects, .activeDatafile(sdkKey: sdkKey)) { records, _ in
            let active = records.activeDatafile?.version ?? 0
            let result = ProjectRules.remove(sdkKey, expecting: version, active: active, among: records.projects)
            guard result == .removed, let former = records.projects.first(where: { $0.sdkKey == sdkKey }) else {
                return result
            }
            records.write(.deleteProject(sdkKey: sdkKey))
            records.record(AuditNote(removing: former), by: author)
            return result
        }
    }
}

// MARK: Attributes and segments

extension SharedChange<AttributeDefinitionResult> {
    /// Defines an attribute, or changes the allowed values of a selection, and records the change in the audit log. The
    /// attribute gets a new number or keeps its own; the number of `definition` is ignored.
    public static func putAttribute(_ definition: AttributeDefinition, by author: Author) -> Self {
        Self(.attribute(definition.name)) { records, _ in records.define(definition, by: author) }
    }
}

/// Attributes, segments and webhooks to define in one transaction, with or without a datafile.
public struct SchemaChange: Sendable {
    public var attributes: [AttributeDefinition] = []
    public var segments: [Segment] = []
    public var webhooks: [WebhookChange] = []

    public init() {}

    /// Whether the change defines no attributes and segments, which all projects share.
    public var isOfProject: Bool { attributes.isEmpty && segments.isEmpty }

    public var isEmpty: Bool { isOfProject && webhooks.isEmpty }

    /// The parts of ``SharedRecords`` that the change needs.
    fileprivate var parts: [SharedRecords.Part] {
        attributes.map { .attribute($0.name) } + segments.map { .segment($0.name) }
            + webhooks.map { .webhook(key: $0.key) }
    }
}

extension SharedRecords {
    /// Defines an attribute, unless the name belongs to an attribute of another type, and records the change.
    fileprivate mutating func define(
        _ definition: AttributeDefinition, by author: Author
    ) -> AttributeDefinitionResult {
        let former = attributes[definition.name]
        var result = AttributeRules.define(definition, replacing: former)
        switch result {
        case .created(let wanted):
            newestAttribute += 1
            let created = wanted.numbered(UInt32(clamping: newestAttribute))
            write(.insertAttribute(created))
            result = .created(created)
        case .changed(let definition): write(.updateAttribute(definition))
        case .unchanged, .otherType: break
        }
        if let note = AuditNote(result, replacing: former) { record(note, by: author) }
        return result
    }

    /// Defines a segment, unless it has the same conditions already, and records the change.
    ///
    /// - Returns: whether the segment is new.
    fileprivate mutating func define(_ segment: Segment, by author: Author) -> Bool {
        let former = segments[segment.name]
        guard former != segment.conditions else { return false }
        write(.putSegment(segment))
        record(AuditNote(segment, replacing: former), by: author)
        return former == nil
    }

    /// Defines all attributes, segments and webhooks of a change, or none of them.
    ///
    /// - Returns: `false` if nothing was defined, because an attribute has another type, or because a webhook was
    ///   changed meanwhile.
    fileprivate mutating func define(_ schema: SchemaChange, by author: Author) -> Bool {
        let typesFit = schema.attributes.allSatisfy { definition in
            if case .otherType = AttributeRules.define(definition, replacing: attributes[definition.name]) {
                return false
            }
            return true
        }
        guard typesFit, schema.webhooks.allSatisfy({ admits($0) }) else { return false }
        for attribute in schema.attributes { _ = define(attribute, by: author) }
        for segment in schema.segments { _ = define(segment, by: author) }
        for webhook in schema.webhooks { apply(webhook, by: author) }
        return true
    }
}

extension SharedChange<Bool> {
    /// Deletes an attribute. The values of users are deleted in the background. Readers ignore the values as soon as
    /// they know the new schema. The result is whether the attribute existed.
    public static func removeAttribute(_ name: Identifier, by author: Author) -> Self {
        Self(.attribute(name)) { records, _ in
            guard let former = records.attributes[name] else { return false }
            records.write(.deleteAttribute(former))
            records.record(AuditNote(removing: former), by: author)
            return true
        }
    }

    /// Defines a segment, or changes its conditions. The result is whether the segment is new.
    public static func putSegment(_ segment: Segment, by author: Author) -> Self {
        Self(.segment(segment.name)) { records, _ in records.define(segment, by: author) }
    }

    /// Defines attributes, segments and webhooks. The result is `false` if nothing was defined, because an attribute
    /// has another type, a webhook was changed meanwhile, or the approved proposal has been decided already.
    public static func putSchema(_ schema: SchemaChange, approval: Approval? = nil, by author: Author) -> Self {
        Self(and: schema.parts + (approval.map { [$0.part] } ?? [])) { records, context in
            guard records.admits(approval), records.define(schema, by: author) else { return false }
            records.settle(approval, at: context.now)
            return true
        }
    }

    /// Deletes a segment. The result is whether the segment existed.
    public static func removeSegment(_ name: Identifier, by author: Author) -> Self {
        Self(.segment(name)) { records, _ in
            guard let former = records.segments[name] else { return false }
            records.write(.deleteSegment(name))
            records.record(AuditNote(.segmentDelete, of: name.string, before: former), by: author)
            return true
        }
    }
}

// MARK: Sticky documents and the audit log

extension SharedChange<StickyDocument> {
    /// Merges assignments into a sticky document, and removes others. The result is the document after the change.
    /// Nothing is written if the document stays the same. An empty document is deleted. The change fails with
    /// ``StorageError/tooManyAssignments(limit:)`` if the document would exceed the limit.
    public static func stickyDocument(_ change: StickyDocumentChange) -> Self {
        Self(
            .stickyDocument(change.key, isChanged: true), userID: change.key.attributeValue,
            bytes: change.waitingBytes
        ) { records, context throws(StorageError) in
            var stored: StickyDocument?
            if let content = records.stickyDocument { stored = try StickyDocument(key: change.key, content: content) }
            let document = try StickyDocumentRules.merge(
                change, into: stored, limit: context.profiles.assignmentLimit)
            if document != stored ?? StickyDocument(key: change.key) {
                records.write(
                    document.assignments.isEmpty ? .deleteStickyDocument(change.key) : .putStickyDocument(document))
            }
            return document
        }
    }
}

extension SharedChange<Bool> {
    /// Deletes a sticky document, even if it cannot be decoded, and records the deletion in the audit log. The result
    /// is whether the document existed.
    public static func removeStickyDocument(_ key: StickyDocumentKey, by author: Author) -> Self {
        Self(.stickyDocument(key, isChanged: false)) { records, _ in
            guard let former = records.stickyDocument else { return false }
            records.write(.deleteStickyDocument(key))
            records.record(AuditNote(removing: key, try? StickyDocument(key: key, content: former)), by: author)
            return true
        }
    }
}

extension SharedChange<Void> {
    /// Records in the audit log an action that took place outside the store.
    public static func record(_ note: AuditNote, by author: Author) -> Self {
        Self { records, _ in records.record(note, by: author) }
    }
}
