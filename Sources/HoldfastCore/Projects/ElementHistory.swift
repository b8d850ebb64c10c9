public import Bucketing
import Chronology
import Definitions
import JSON
public import Storage

/// What the kept datafiles of a project say of one experiment, flag, metric or holdout.
///
/// Of a datafile that an edit has stored only the elements are read that the definition consists of; see
/// ``DefinitionParts``. An uploaded one is read as a whole.
public struct ElementHistory: Sendable {
    public enum Action: String, Sendable {
        case created, changed, removed
        /// The oldest datafile that is kept has the definition, which may be older.
        case oldestKept = "oldest_kept"
    }

    /// A datafile in which the definition is not as in the one before.
    public struct Entry: Sendable {
        /// Without its content.
        public let datafile: StoredDatafile
        public let action: Action
        /// What differs from the datafile before; `nil` if the definition is in only one of them.
        public let difference: DefinitionDifference?
        /// `nil` if the definition is removed.
        public let state: DefinitionState?
    }

    private let kind: DefinitionSet.Kind
    private let key: Identifier
    private let sdkKey: String
    private let present: ProjectDefinitions
    /// The version of ``present``.
    private let presentVersion: Int64
    private let createdAt: Instant?
    private let parts: DefinitionParts
    private let versions: DefinitionVersions

    private var datafiles: [StoredDatafile] { versions.datafiles }

    /// Reads what is kept.
    ///
    /// - Parameters:
    ///   - project: the present state, as far as this process knows.
    ///   - record: tells which datafile is the first one.
    public init(
        of kind: DefinitionSet.Kind, _ key: Identifier, in project: Project, _ record: ProjectRecord?,
        _ session: any StoreSession
    ) async throws(StorageError) {
        (self.kind, self.key) = (kind, key)
        var parts = DefinitionParts(kind, key)
        parts.add(project.definitions)
        versions = try await parts.versions { keys throws(StorageError) in
            try await session.read(.definitionVersions(sdkKey: project.sdkKey, keys: keys))
        }
        self.parts = parts
        (sdkKey, present, presentVersion) = (project.sdkKey, project.definitions, project.version)
        createdAt = record?.createdAt
    }

    // MARK: Entries

    /// How many uploads are read for a page. Each is read as a whole, while edits wait.
    private static let mostUploads = 10

    /// Returns the entries, newest first.
    ///
    /// - Parameters:
    ///   - version: only entries before this version are returned; `nil` for all.
    ///   - limit: the number of entries that are returned at most.
    /// - Returns: also the version before which there may be more.
    public func entries(
        before version: Int64?, limit: Int, _ session: any StoreSession
    ) async throws -> (entries: [Entry], next: Int64?) {
        let kept = datafiles.filter { $0.version < version ?? .max }
        guard let newest = kept.first else { return ([], nil) }
        var uploads = 0
        var entries: [Entry] = []
        var state = try await state(in: newest, session)
        for (index, datafile) in kept.enumerated() {
            guard index + 1 < kept.count else {
                if let state { entries.append(oldest(datafile, state)) }
                break
            }
            guard mayDiffer(datafile, from: kept[index + 1]) else { continue }
            if case .whole = kept[index + 1].body { uploads += 1 }
            if uploads > Self.mostUploads { return (entries, datafile.version + 1) }
            let former = try await self.state(in: kept[index + 1], session)
            if let entry = entry(datafile, from: former, to: state) { entries.append(entry) }
            if entries.count > limit { break }
            state = former
        }
        let page = Array(entries.prefix(limit))
        return (page, entries.count > limit ? page.last?.datafile.version : nil)
    }

    private func oldest(_ datafile: StoredDatafile, _ state: DefinitionState) -> Entry {
        // The first datafile of a project is stored with the project's record.
        let isFirst = datafile.storedAt == createdAt
        return Entry(datafile: datafile, action: isFirst ? .created : .oldestKept, difference: nil, state: state)
    }

    private func entry(
        _ datafile: StoredDatafile, from former: DefinitionState?, to state: DefinitionState?
    ) -> Entry? {
        switch (former, state) {
        case (nil, nil): return nil
        case (nil, _?): return Entry(datafile: datafile, action: .created, difference: nil, state: state)
        case (_?, nil): return Entry(datafile: datafile, action: .removed, difference: nil, state: nil)
        case (let former?, let state?):
            let difference = DefinitionDifference(kind: kind, key: key, before: former.object, after: state.object)
            guard difference.isDifference else { return nil }
            return Entry(datafile: datafile, action: .changed, difference: difference, state: state)
        }
    }

    // MARK: States

    /// Returns the definition in a datafile; `nil` if that lacks it.
    public func state(
        in datafile: StoredDatafile, _ session: any StoreSession
    ) async throws -> DefinitionState? {
        if case .parts(let former) = datafile.body {
            return try parts.state(in: versions.elements(in: datafile.version), former.base)
        }
        if datafile.version == presentVersion { return present.state(of: kind, key) }
        // Another change may have deleted it meanwhile.
        guard let stored = try await session.read(.datafile(sdkKey: sdkKey, version: datafile.version)) else {
            return nil
        }
        return parts.state(in: try Datafile.parsed(stored.content))
    }

    /// Returns the definition in a version, so that it can be put back.
    ///
    /// - Parameter noun: names what it is in errors.
    /// - Throws: 404 if the version is not kept, or lacks the definition; 409 if only an upload can bring it again.
    public func restorableState(
        in version: Int64, noun: String, _ session: any StoreSession
    ) async throws -> DefinitionState {
        guard let datafile = datafiles.first(where: { $0.version == version }) else {
            let range = datafiles.last.map { "; \(datafiles.count) are kept, the oldest is \($0.version)" } ?? ""
            throw CoreError(
                .notFound,
                "the project '\(sdkKey)' has no datafile of version \(version), or keeps it no longer\(range)")
        }
        guard let state = try await state(in: datafile, session) else {
            throw CoreError(.notFound, "version \(version) has no \(noun) with the key '\(key)'")
        }
        guard !state.isOfDatafile else {
            throw CoreError(
                .conflict,
                "a datafile brought the \(noun) '\(key)' of version \(version), and only PUT /v1/datafile can bring it again; "
                    + "GET /v1/datafile/history/\(version) has it")
        }
        return state
    }

    /// Whether the definition may differ between two datafiles in a row.
    private func mayDiffer(_ datafile: StoredDatafile, from former: StoredDatafile) -> Bool {
        guard case .parts = datafile.body, case .parts = former.body else { return true }
        // Holdouts and the names of groups are in the rest of the datafile.
        if kind == .holdouts { return true }
        let isBetween = { (version: Int64) in version > former.version && version <= datafile.version }
        return versions.rows.contains { row in
            isBetween(row.version) || row.until.map(isBetween) ?? false || row.element.name.isGrouped
        }
    }
}
