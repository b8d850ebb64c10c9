public import Bucketing
import Chronology
import Definitions
import JSON
public import Storage

/// The history of one experiment, flag, metric or holdout, from the datafiles of its project that are kept.
///
/// For a datafile that an edit has stored, only the elements of this definition are read; see ``DefinitionParts``. An
/// uploaded datafile is read whole.
///
/// ``entries(before:limit:_:)`` lists the datafiles that changed the definition.
/// ``restorableState(in:noun:_:)`` returns a former state, so that it can be restored.
public struct ElementHistory: Sendable {
    public enum Action: String, Sendable {
        case created, changed, removed
        /// The oldest datafile that is kept has the definition. An older one may have created it.
        case oldestKept = "oldest_kept"
    }

    /// A datafile in which the definition differs from the datafile before.
    public struct Entry: Sendable {
        /// The datafile without its content.
        public let datafile: StoredDatafile
        public let action: Action
        /// The difference from the datafile before; `nil` if the definition is in only one of the two.
        public let difference: DefinitionDifference?
        /// The definition in the datafile; `nil` if the datafile removed it.
        public let state: DefinitionState?
    }

    private let kind: DefinitionSet.Kind
    private let key: Identifier
    private let sdkKey: String
    /// The active definitions of the project. They save reading the newest datafile.
    private let current: ProjectDefinitions
    /// The version of the datafile of ``current``.
    private let currentVersion: Int64
    /// When the project was created; `nil` if the caller does not know it.
    private let createdAt: Instant?
    private let parts: DefinitionParts
    private let versions: DefinitionVersions

    /// The datafiles that are kept, newest first.
    private var datafiles: [StoredDatafile] { versions.datafiles }

    /// Reads the versions of the definition that are stored in parts, and the list of datafiles.
    ///
    /// - Parameters:
    ///   - project: the project with its active datafile.
    ///   - record: the record of the project, which has the time of its creation. ``entries(before:limit:_:)``
    ///     recognizes the first datafile by this time. `nil` if the caller reads only states.
    public init(
        of kind: DefinitionSet.Kind, _ key: Identifier, in project: Project, _ record: ProjectRecord?,
        _ session: any StoreSession
    ) async throws(StorageError) {
        self.kind = kind
        self.key = key
        sdkKey = project.sdkKey
        current = project.definitions
        currentVersion = project.version
        createdAt = record?.createdAt
        var parts = DefinitionParts(kind, key)
        parts.addKeys(of: project.definitions)
        versions = try await parts.versions { keys throws(StorageError) in
            try await session.read(.definitionVersions(sdkKey: project.sdkKey, keys: keys))
        }
        self.parts = parts
    }

    // MARK: Entries

    /// The maximum number of uploaded datafiles that are read for a page. Each is read whole, and edits wait meanwhile.
    private static let uploadLimit = 10

    /// Returns a page of entries, newest first.
    ///
    /// - Parameters:
    ///   - version: only entries before this version are returned; `nil` for all.
    ///   - limit: the maximum number of entries. There may be fewer, because a page reads at most 10 uploads.
    /// - Returns: the entries, and the `version` that requests the next page; `nil` after the last page.
    public func entries(
        before version: Int64?, limit: Int, _ session: any StoreSession
    ) async throws -> (entries: [Entry], next: Int64?) {
        let kept = datafiles.filter { $0.version < version ?? .max }
        guard let newest = kept.first, let oldest = kept.last else { return ([], nil) }
        var uploadCount = 0
        var entries: [Entry] = []
        var state = try await self.state(in: newest, session)
        for (datafile, former) in zip(kept, kept.dropFirst()) where mayDiffer(datafile, from: former) {
            if case .whole = former.body { uploadCount += 1 }
            // The next page begins with this datafile.
            if uploadCount > Self.uploadLimit { return (entries, datafile.version + 1) }
            let formerState = try await self.state(in: former, session)
            if let entry = entry(datafile, from: formerState, to: state) { entries.append(entry) }
            if entries.count > limit { return Self.page(of: entries, limit: limit) }
            state = formerState
        }
        if let state { entries.append(oldestEntry(oldest, state)) }
        return Self.page(of: entries, limit: limit)
    }

    /// Returns the first entries, and the version before which the next page begins; `nil` if there are no others.
    private static func page(of entries: [Entry], limit: Int) -> (entries: [Entry], next: Int64?) {
        let page = Array(entries.prefix(limit))
        return (page, entries.count > limit ? page.last?.datafile.version : nil)
    }

    /// Returns the entry of the oldest datafile that is kept.
    private func oldestEntry(_ datafile: StoredDatafile, _ state: DefinitionState) -> Entry {
        // The first datafile of a project is stored together with the record of the project.
        let isFirst = datafile.storedAt == createdAt
        return Entry(datafile: datafile, action: isFirst ? .created : .oldestKept, difference: nil, state: state)
    }

    /// Returns the entry of a datafile; `nil` if the definition is the same as before.
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

    /// Whether the definition may differ between a datafile and the one before. Without reading the datafiles, this
    /// excludes most of them.
    private func mayDiffer(_ datafile: StoredDatafile, from former: StoredDatafile) -> Bool {
        guard case .parts = datafile.body, case .parts = former.body else { return true }
        // Holdouts are in the base of the datafile, not in its elements.
        if kind == .holdouts { return true }
        let isBetween = { (version: Int64) in version > former.version && version <= datafile.version }
        return versions.rows.contains { row in
            let isStored = isBetween(row.version)
            let isReplaced = row.until.map(isBetween) ?? false
            // The base also has the names of groups, which an experiment of a group shows.
            return isStored || isReplaced || row.element.name.isGrouped
        }
    }

    // MARK: States

    /// Returns the definition in a datafile; `nil` if the datafile does not have it.
    public func state(
        in datafile: StoredDatafile, _ session: any StoreSession
    ) async throws -> DefinitionState? {
        if case .parts(let former) = datafile.body {
            return try parts.state(in: versions.elements(in: datafile.version), former.base)
        }
        if datafile.version == currentVersion { return current.state(of: kind, key) }
        // The datafile may have been deleted since the list was read, because only some are kept.
        guard let stored = try await session.read(.datafile(sdkKey: sdkKey, version: datafile.version)) else {
            return nil
        }
        return parts.state(in: try Datafile.parsed(stored.content))
    }

    /// Returns the definition in a version of the datafile, for restoring it.
    ///
    /// - Parameter noun: the kind of the definition in errors, such as `experiment`.
    /// - Throws: 404 if the version is not kept or does not have the definition; 409 if an uploaded datafile defines
    ///   it, so that only an upload can restore it.
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
}
