public import Bucketing
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
        /// Users who take part and would be moved, in all experiments and flags of the project.
        public var moves = MoveCounts()
    }

    private let catalog: ProjectCatalog

    /// The number of profiles in a page.
    private static let page = 1_024
    /// The maximum number of concurrent counts; more are refused.
    private static let limit = 8

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Counts the users of an experiment, and those whom its change would move.
    ///
    /// - Parameters:
    ///   - project: the project before the change; `nil` if it has no datafile yet.
    ///   - edited: its datafile after the change.
    /// - Throws: 503 if too many counts are in progress.
    public func count(
        _ preview: ExperimentPreview, from project: Project?, to edited: Datafile
    ) async throws -> Counts {
        let count = Count(preview: preview, moves: project.map { DefinitionMoves(from: $0, to: edited) })
        return try await self.count(count) { session throws(StorageError) in
            let tally = try await session.read(.tally(experimentID: preview.edited.id, goal: ""))
            return tally.users.reduce(0) { $0 + $1.counts.counted + $1.counts.multipleVariations + $1.counts.chosen }
        }
    }

    /// Counts the users who take part and whom a change of a project would move.
    ///
    /// - Parameters: as of ``count(_:from:to:)``; and the segments whose conditions change, which may move users of other
    ///   projects, too.
    /// - Throws: 503 if too many counts are in progress.
    public func countMoves(
        from project: Project?, to edited: Datafile, changing segments: [Segment] = []
    ) async throws -> MoveCounts {
        guard let project else { return MoveCounts() }
        return try await count(catalog.moves(from: project, to: edited, changing: segments))
    }

    private func count(_ all: [DefinitionMoves]) async throws -> MoveCounts {
        var counts = MoveCounts()
        for moves in all { counts.add(try await count(Count(preview: nil, moves: moves)).moves) }
        return counts
    }

    /// Refuses a change that can move users who take part, unless it is allowed to.
    ///
    /// - Parameters:
    ///   - edited: the datafile of a project as the change leaves it.
    ///   - segment: the segment that changes, if it is that which does.
    /// - Throws: 409 with the number of users if there are any.
    public func check(
        _ project: Project, to edited: Datafile, changing segment: Segment? = nil, _ policy: ProjectEditor.MovePolicy
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
        defer { catalog.counting.subtract(1, ordering: .relaxed) }
        guard catalog.counting.add(1, ordering: .relaxed).newValue <= Self.limit else {
            throw CoreError(.unavailable, "too many previews are in progress; try again later")
        }
        return try await catalog.inBackground { session in
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

extension ProjectCatalog {
    /// Returns what a change can do to users: of its project, and of the others that use segments which change.
    func moves(from project: Project, to edited: Datafile, changing segments: [Segment]) -> [DefinitionMoves] {
        var moves = [DefinitionMoves(from: project, to: edited, changing: segments)]
        if !segments.isEmpty {
            moves += snapshot().projects.values.filter { $0.sdkKey != project.sdkKey }
                .map { DefinitionMoves(from: $0, to: $0.datafile, changing: segments) }
        }
        return moves.filter { !$0.isEmpty }
    }
}
