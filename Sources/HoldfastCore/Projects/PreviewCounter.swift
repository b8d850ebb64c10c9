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

    public typealias Completion = @Sendable (Result<Counts, CoreError>) -> Void

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
    ///   - completion: called on a queue of the catalog; with 503 if too many counts are in progress.
    public func count(
        _ preview: ExperimentPreview, from project: Project?, to edited: Datafile, _ completion: @escaping Completion
    ) {
        let count = Count(preview: preview, moves: project.map { DefinitionMoves(from: $0, to: edited) })
        begin(completion) { completion in
            catalog.inBackground { session in
                session.tally(experimentID: preview.edited.id, goal: "") { result in
                    switch result {
                    case .success(let tally):
                        var counts = Counts()
                        counts.exposed = tally.users.reduce(0) {
                            $0 + $1.counts.counted + $1.counts.crossed + $1.counts.forced
                        }
                        resume(count, counts, after: nil, completion)
                    case .failure(let error): completion(.failure(CoreError(error)))
                    }
                }
            }
        }
    }

    /// Refuses a change that can move users who take part, unless it is allowed to.
    ///
    /// - Parameters:
    ///   - edited: the datafile of a project as the change leaves it.
    ///   - segment: the segment that changes, if it is that which does.
    ///   - completion: called on a queue of the catalog; with 409 and the number of users if there are any.
    public func check(
        _ project: Project, to edited: Datafile, changing segment: Segment? = nil, _ policy: ProjectEditor.MovePolicy,
        _ completion: @escaping @Sendable (Result<Void, CoreError>) -> Void
    ) {
        let moves = DefinitionMoves(from: project, to: edited, changing: segment)
        guard policy == .refuse, !moves.isEmpty else { return catalog.inBackground { _ in completion(.success(())) } }
        count(moves) { result in
            completion(result.flatMap { $0.moves.isEmpty ? .success(()) : .failure($0.moves.refusal) })
        }
    }

    /// Counts the users whom a change would move.
    ///
    /// - Parameter completion: called on a queue of the catalog; with 503 if too many counts are in progress.
    func count(_ moves: DefinitionMoves, _ completion: @escaping Completion) {
        begin(completion) { resume(Count(preview: nil, moves: moves), Counts(), after: nil, $0) }
    }

    private func begin(_ completion: @escaping Completion, _ count: (@escaping Completion) -> Void) {
        guard catalog.counting.add(1, ordering: .relaxed).newValue <= Self.limit else {
            catalog.counting.subtract(1, ordering: .relaxed)
            return completion(.failure(CoreError(.unavailable, "too many previews are in progress; try again later")))
        }
        count { [catalog] result in
            catalog.counting.subtract(1, ordering: .relaxed)
            completion(result)
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

    private func resume(_ count: Count, _ former: Counts, after: Identifier?, _ completion: @escaping Completion) {
        catalog.inBackground { session in
            session.profiles(after: after, limit: Self.page) { result in
                switch result {
                case .success(let page):
                    add(page, of: count, to: former, session) { result in
                        switch result {
                        case .success(let counts):
                            guard let end = page.end else { return completion(.success(counts)) }
                            resume(count, counts, after: end, completion)
                        case .failure(let error): completion(.failure(CoreError(error)))
                        }
                    }
                case .failure(let error): completion(.failure(CoreError(error)))
                }
            }
        }
    }

    /// Counts the users of a page, those whose attributes must be read last.
    private func add(
        _ page: ProfilePage, of count: Count, to former: Counts, _ session: any StoreSession,
        _ completion: @escaping (Result<Counts, StorageError>) -> Void
    ) {
        var counts = former
        var others: [(userID: Identifier, profile: ProfileRecord)] = []
        for (userID, profile) in page.profiles {
            if count.needsAttributes(profile) {
                others.append((userID, profile))
            } else {
                count.count(userID, profile, nil, in: &counts)
            }
        }
        let pending = PendingCounts(counts, of: others.count, completion)
        for (userID, profile) in others {
            session.attributes(of: userID) { result in
                pending.add(result) { count.count(userID, profile, $0, in: &$1) }
            }
        }
    }
}

/// The counts of a page while attributes are read. Confined to the executor of the session.
private final class PendingCounts {
    private var counts: PreviewCounter.Counts
    private var missing: Int
    private var failure: StorageError?
    private let completion: (Result<PreviewCounter.Counts, StorageError>) -> Void

    init(
        _ counts: PreviewCounter.Counts, of missing: Int,
        _ completion: @escaping (Result<PreviewCounter.Counts, StorageError>) -> Void
    ) {
        self.counts = counts
        self.missing = missing
        self.completion = completion
        if missing == 0 { completion(.success(counts)) }
    }

    /// - Parameter count: gets the attributes; `nil` if they are damaged, so that they count as unknown.
    func add(
        _ result: Result<AttributeRecord?, StorageError>,
        _ count: (AttributeRecord?, inout PreviewCounter.Counts) -> Void
    ) {
        switch result {
        case .success(let record): count(record, &counts)
        case .failure(let error) where error.concernsOneUser: count(nil, &counts)
        case .failure(let error): failure = error
        }
        missing -= 1
        if missing == 0 { completion(failure.map { .failure($0) } ?? .success(counts)) }
    }
}
