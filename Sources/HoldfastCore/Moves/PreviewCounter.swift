public import Bucketing
public import Definitions
import Storage
internal import Synchronization

/// Counts what a change of definitions would do to the stored users, in the background.
///
/// The profiles are read in pages that take some milliseconds, so that edits of datafiles can run between them. A
/// preview returns the counts; an edit that must not move users is refused if there are any (``refuse(_:)``).
public struct PreviewCounter: Sendable {
    /// The numbers of users whom a change of an experiment concerns.
    public struct Counts: Sendable {
        /// Users whose profile has an assignment of the experiment.
        public var enrolled = ExperimentPreview.Enrolled()
        /// Users who were exposed to the experiment, with a profile or without.
        public var exposed = 0
        /// Enrolled users who would be moved, in all experiments and flags of the project.
        public var moves = MoveCounts()
    }

    let catalog: ProjectCatalog

    /// The number of profiles in a page.
    static let pageSize = 1_024

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Counts the users of an experiment, and those whom its change would move.
    ///
    /// - Parameters:
    ///   - project: the project before the change; `nil` if it has no datafile yet.
    ///   - edited: the definitions of the project after the change.
    /// - Throws: 503 if too many counts are in progress.
    public func count(
        _ preview: ExperimentPreview, from project: Project?, to edited: CompiledDefinitions
    ) async throws -> Counts {
        let count = Count(preview: preview, moves: project.map { DefinitionMoves(from: $0, to: edited) })
        return try await self.count(count) { session throws(StorageError) in
            let tally = try await session.read(.users(experimentID: preview.edited.id))
            return tally.users.reduce(0) { $0 + $1.counts.counted + $1.counts.multipleVariations + $1.counts.chosen }
        }
    }

    /// Counts the enrolled users whom a change of a project would move.
    ///
    /// - Parameters:
    ///   - project: the project before the change; `nil` if it has no datafile yet.
    ///   - edited: the definitions of the project after the change.
    ///   - segments: the segments whose conditions change. This may move users of other projects, too.
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

    /// Refuses a change that can move enrolled users, unless the policy allows moves.
    ///
    /// - Parameters:
    ///   - edited: the definitions of the project after the change.
    ///   - segment: the segment whose conditions change; `nil` if no segment changes.
    /// - Throws: 409 with the number of users whom the change can move, 503 if too many counts are in progress.
    public func check(
        _ project: Project, to edited: CompiledDefinitions, changing segment: Segment? = nil,
        _ policy: ProjectEditor.MovePolicy
    ) async throws {
        let moves = DefinitionMoves(from: project, to: edited, changing: segment.map { [$0] } ?? [])
        if policy == .refuse, !moves.isEmpty { try await refuse([moves]) }
    }

    /// Counts the users whom a change would move, and refuses the change if there are any.
    ///
    /// - Throws: 409 with the number of users, 503 if too many counts are in progress.
    func refuse(_ moves: [DefinitionMoves]) async throws {
        let counts = try await count(moves)
        if !counts.isEmpty { throw counts.refusal }
    }

    /// Counts all users with a profile, page by page.
    ///
    /// - Parameter exposed: reads the number of users who were exposed.
    private func count(
        _ count: Count,
        exposed: @escaping @Sendable (any StoreSession) async throws(StorageError) -> Int = { _ in 0 }
    ) async throws -> Counts {
        try await catalog.whileCounting { session in
            var counts = Counts()
            counts.exposed = try await exposed(session)
            var lastUserID: Identifier?
            repeat {
                let page = try await session.read(.profiles(after: lastUserID, limit: Self.pageSize))
                try await add(page, of: count, to: &counts, session)
                lastUserID = page.end
                await Task.yield()
            } while lastUserID != nil
            return counts
        }
    }

    /// The changes whose effects are counted for each user.
    private struct Count: Sendable {
        /// The change of an experiment; `nil` to count moves only.
        var preview: ExperimentPreview?
        /// The change of the definitions; `nil` for a new project, which has no users to move.
        var moves: DefinitionMoves?

        /// Counts one user.
        func count(_ userID: Identifier, _ profile: ProfileRecord, _ record: AttributeRecord?, in counts: inout Counts)
        {
            let stored =
                moves?.stored(profile, of: userID, record)
                ?? StickyAssignments(profile, forced: nil, attributes: nil)
            preview?.count(userID, stored, in: &counts.enrolled)
            if let moves, moves.concerns(profile) { counts.moves.count(moves.moves(of: userID, profile, record)) }
        }

        /// Whether the stored attributes of a user are needed to count the user.
        func needsAttributes(_ profile: ProfileRecord) -> Bool {
            moves.map { $0.needsAttributes && $0.concerns(profile) } ?? false
        }
    }

    /// Counts the users of a page: first those who need no attributes, then those whose attributes must be read.
    private func add(
        _ page: ProfilePage, of count: Count, to counts: inout Counts, _ session: any StoreSession
    ) async throws(StorageError) {
        let usersWithAttributes = page.profiles.filter { count.needsAttributes($0.profile) }
        for (userID, profile) in page.profiles where !count.needsAttributes(profile) {
            count.count(userID, profile, nil, in: &counts)
        }
        let attributes = await settled(each: usersWithAttributes) { session.attributes(of: $0.userID, $1) }
        for (user, result) in zip(usersWithAttributes, attributes) {
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

extension ProjectCatalog {
    /// The maximum number of concurrent counts. More are refused, because each reads all users.
    private static let countLimit = 8

    /// Runs work that counts users, in the background.
    ///
    /// - Throws: 503 if too many counts are in progress.
    func whileCounting<Value: Sendable>(
        _ work: @escaping @Sendable (any StoreSession) async throws -> Value
    ) async throws -> Value {
        defer { countsInProgress.subtract(1, ordering: .relaxed) }
        guard countsInProgress.add(1, ordering: .relaxed).newValue <= Self.countLimit else {
            throw CoreError(.unavailable, "too many users are being counted; try again later")
        }
        return try await inBackground(work)
    }

    /// Returns the comparisons that must be counted: that of the project that changes, and those of other projects if
    /// segments change, because projects share segments. Comparisons by which no user can move are left out.
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
