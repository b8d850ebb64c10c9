public import Bucketing
public import Definitions
public import JSON
import Storage
internal import Synchronization

/// Counts what a change of definitions would do to the stored users, in the background.
///
/// The profiles are read in pages that take some milliseconds, so that edits of datafiles can run between them.
public struct PreviewCounter: Sendable {
    /// How many users a change concerns.
    public struct Counts: Sendable {
        /// Users whose profile has an assignment of the experiment.
        public var enrolled = ExperimentPreview.Enrolled()
        /// Users who were exposed to the experiment, with a profile or without.
        public var exposed = 0
        /// Enrolled users who would be moved, in all experiments and flags of the project.
        public var moves = MoveCounts()
    }

    private let catalog: ProjectCatalog

    /// The number of profiles in a page.
    private static let page = 1_024
    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Counts the users of an experiment, and those whom its change would move.
    ///
    /// - Parameters:
    ///   - project: the project before the change; `nil` if it has no datafile yet.
    ///   - edited: its definitions after the change.
    /// - Throws: 503 if too many counts are in progress.
    public func count(
        _ preview: ExperimentPreview, from project: Project?, to edited: CompiledDefinitions
    ) async throws -> Counts {
        let count = Count(preview: preview, moves: project.map { DefinitionMoves(from: $0, to: edited) })
        return try await self.count(count) { session throws(StorageError) in
            let tally = try await session.read(.tally(experimentID: preview.edited.id, goal: ""))
            return tally.users.reduce(0) { $0 + $1.counts.counted + $1.counts.multipleVariations + $1.counts.chosen }
        }
    }

    /// Counts the enrolled users whom a change of a project would move.
    ///
    /// - Parameters: as of ``count(_:from:to:)``; and the segments whose conditions change, which may move users of other
    ///   projects, too.
    /// - Throws: 503 if too many counts are in progress.
    public func countMoves(
        from project: Project?, to edited: CompiledDefinitions, changing segments: [Segment] = []
    ) async throws -> MoveCounts {
        guard let project else { return MoveCounts() }
        return try await count(catalog.moves(from: project, to: edited, changing: segments))
    }

    private func count(_ all: [DefinitionMoves]) async throws -> MoveCounts {
        var counts = MoveCounts()
        for moves in all { counts.add(try await count(Count(preview: nil, moves: moves)).moves) }
        return counts
    }

    /// How many of the stored users get another value of a flag by a change.
    public struct ValueCounts: Sendable {
        /// The keys of the variations before and after; `nil` for none.
        public struct Change: Hashable, Sendable {
            public var from: Identifier?
            public var to: Identifier?
        }

        public fileprivate(set) var examined = 0
        /// Whether all stored users were examined; otherwise the first ones, in the order of their ids.
        public fileprivate(set) var isComplete = false
        public fileprivate(set) var changes: [Change: Int] = [:]
        /// The number of examined users who have each variation after the change.
        public fileprivate(set) var results: [Identifier: Int] = [:]

        public init() {}
    }

    /// The maximum number of users whose values are compared.
    static let valueLimit = 100_000

    /// Evaluates a flag before and after a change for the users of whom a profile or attributes are stored. Stores nothing.
    ///
    /// - Throws: 503 if too many counts are in progress.
    public func countValues(
        of key: Identifier, from project: Project, to edited: Datafile
    ) async throws -> ValueCounts {
        return try await catalog.whileCounting { session in
            var counts = ValueCounts()
            var after: Identifier?
            repeat {
                let page = try await session.read(.knownUsers(prefix: "", after: after, limit: Self.page))
                let userIDs = page.map(\.userID)
                let profiles = await settled(each: userIDs) { session.profile(of: $0, $1) }
                let attributes =
                    project.schema.isEmpty ? [] : await settled(each: userIDs) { session.attributes(of: $0, $1) }
                for (index, userID) in userIDs.enumerated() {
                    // Damaged records count as unknown.
                    let stored = StickyAssignments(
                        try? profiles[index].get(), userID, project,
                        attributes: attributes.isEmpty
                            ? nil : StoredAttributes(schema: project.schema, record: try? attributes[index].get()))
                    counts.count(key, of: userID, stored, from: project.datafile, to: edited)
                }
                after = page.count < Self.page ? nil : userIDs.last
                await Task.yield()
            } while after != nil && counts.examined < Self.valueLimit
            counts.isComplete = after == nil
            return counts
        }
    }

    /// Refuses a change that can move enrolled users, unless it is allowed to.
    ///
    /// - Parameters:
    ///   - edited: the definitions of a project as the change leaves them.
    ///   - segment: the segment that changes, if it is that which does.
    /// - Throws: 409 with the number of users if there are any.
    public func check(
        _ project: Project, to edited: CompiledDefinitions, changing segment: Segment? = nil,
        _ policy: ProjectEditor.MovePolicy
    ) async throws {
        let moves = DefinitionMoves(from: project, to: edited, changing: segment.map { [$0] } ?? [])
        if policy == .refuse, !moves.isEmpty { try await refuse([moves]) }
    }

    /// Refuses a change that would move users.
    ///
    /// - Throws: 409 with the number of users if there are any, 503 if too many counts are in progress.
    func refuse(_ moves: [DefinitionMoves]) async throws {
        let counts = try await count(moves)
        if !counts.isEmpty { throw counts.refusal }
    }

    /// - Parameter exposed: returns the number of users who were exposed.
    private func count(
        _ count: Count,
        exposed: @escaping @Sendable (any StoreSession) async throws(StorageError) -> Int = { _ in 0 }
    ) async throws -> Counts {
        return try await catalog.whileCounting { session in
            var counts = Counts()
            counts.exposed = try await exposed(session)
            var after: Identifier?
            repeat {
                let page = try await session.read(.profiles(after: after, limit: Self.page))
                try await add(page, of: count, to: &counts, session)
                after = page.end
                await Task.yield()
            } while after != nil
            return counts
        }
    }

    /// What to count.
    private struct Count: Sendable {
        var preview: ExperimentPreview?
        var moves: DefinitionMoves?

        /// Counts a user.
        func count(_ userID: Identifier, _ profile: ProfileRecord, _ record: AttributeRecord?, in counts: inout Counts)
        {
            let stored =
                moves?.stored(profile, of: userID, record)
                ?? StickyAssignments(profile, forced: nil, attributes: nil)
            preview?.count(userID, stored, in: &counts.enrolled)
            if let moves, moves.concerns(profile) { counts.moves.count(moves.moves(of: userID, profile, record)) }
        }

        /// Whether counting a user takes the stored attributes.
        func needsAttributes(_ profile: ProfileRecord) -> Bool {
            moves.map { $0.needsAttributes && $0.concerns(profile) } ?? false
        }
    }

    /// Counts the users of a page, those whose attributes must be read last.
    private func add(
        _ page: ProfilePage, of count: Count, to counts: inout Counts, _ session: any StoreSession
    ) async throws(StorageError) {
        let others = page.profiles.filter { count.needsAttributes($0.profile) }
        for (userID, profile) in page.profiles where !count.needsAttributes(profile) {
            count.count(userID, profile, nil, in: &counts)
        }
        let attributes = await settled(each: others) { session.attributes(of: $0.userID, $1) }
        for (user, result) in zip(others, attributes) {
            do throws(StorageError) {
                count.count(user.userID, user.profile, try result.get(), in: &counts)
            } catch {
                // Damaged attributes count as unknown.
                guard error.concernsOneUser else { throw error }
                count.count(user.userID, user.profile, nil, in: &counts)
            }
        }
    }
}

extension PreviewCounter.ValueCounts {
    fileprivate mutating func count(
        _ key: Identifier, of userID: Identifier, _ stored: StickyAssignments, from former: Datafile,
        to edited: Datafile
    ) {
        func evaluate(_ datafile: Datafile) -> FlagEvaluation? {
            DecisionService(datafile: datafile).decide(key, for: User(id: userID), stored: stored)
                .map { FlagEvaluation($0.value, datafile) }
        }
        examined += 1
        let (before, after) = (evaluate(former), evaluate(edited))
        if let variation = after?.variationKey { results[variation, default: 0] += 1 }
        guard before?.value != after?.value else { return }
        changes[Change(from: before?.variationKey, to: after?.variationKey), default: 0] += 1
    }

    /// As the response of a preview has it.
    public var json: JSONValue {
        let changed = changes.sorted { ($1.value, $0.key.name) < ($0.value, $1.key.name) }
        return [
            "examined": .integer(Int64(examined)), "complete": .bool(isComplete),
            "changed": .integer(Int64(changes.values.reduce(0, +))),
            "changes": .array(
                changed.map { change, users in
                    [
                        "from": change.from.map { JSONValue($0) } ?? .null,
                        "to": change.to.map { JSONValue($0) } ?? .null, "users": .integer(Int64(users)),
                    ]
                }),
            "results": .object(
                results.sorted { $0.key < $1.key }.reduce(into: JSONObject()) { object, result in
                    object[result.key.string] = .integer(Int64(result.value))
                }),
        ]
    }
}

extension PreviewCounter.ValueCounts.Change {
    /// For a stable order.
    fileprivate var name: String { "\(from?.string ?? "") \(to?.string ?? "")" }
}

extension ProjectCatalog {
    /// The maximum number of concurrent counts; more are refused.
    private static let countLimit = 8

    /// Counts users in the background.
    ///
    /// - Throws: 503 if too many counts are in progress.
    func whileCounting<Value: Sendable>(
        _ work: @escaping @Sendable (any StoreSession) async throws -> Value
    ) async throws -> Value {
        defer { counting.subtract(1, ordering: .relaxed) }
        guard counting.add(1, ordering: .relaxed).newValue <= Self.countLimit else {
            throw CoreError(.unavailable, "too many users are being counted; try again later")
        }
        return try await inBackground(work)
    }

    /// Returns what a change can do to users: of its project, and of the others that use segments which change.
    func moves(
        from project: Project, to edited: CompiledDefinitions, changing segments: [Segment]
    ) -> [DefinitionMoves] {
        var moves = [DefinitionMoves(from: project, to: edited, changing: segments)]
        if !segments.isEmpty {
            moves += snapshot().projects.values.filter { $0.sdkKey != project.sdkKey }
                .map { DefinitionMoves(from: $0, to: $0.compiled, changing: segments) }
        }
        return moves.filter { !$0.isEmpty }
    }
}
