import Bucketing
import Storage
internal import Synchronization

/// Counts what a change of an experiment would do to the stored profiles, in the background.
///
/// The profiles are read in pages that take some milliseconds, so that edits of datafiles can run between them.
public final class PreviewCounter: Sendable {
    /// How many users a change concerns.
    public struct Counts: Sendable {
        /// Users whose profile has an assignment of the experiment.
        public var enrolled = ExperimentPreview.Enrolled()
        /// Users who were exposed to the experiment, with a profile or without.
        public var exposed = 0
    }

    public typealias Completion = @Sendable (Result<Counts, CoreError>) -> Void

    private let catalog: ProjectCatalog
    private let counting = Atomic<Int>(0)

    /// The number of profiles in a page.
    private static let page = 1_024
    /// The maximum number of concurrent counts; more are refused.
    private static let limit = 8

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// - Parameter completion: called on a queue of the catalog; with 503 if too many counts are in progress.
    public func count(_ preview: ExperimentPreview, _ completion: @escaping Completion) {
        guard counting.add(1, ordering: .relaxed).newValue <= Self.limit else {
            counting.subtract(1, ordering: .relaxed)
            return completion(.failure(CoreError(.unavailable, "too many previews are in progress; try again later")))
        }
        let completion: Completion = { [self] result in
            counting.subtract(1, ordering: .relaxed)
            completion(result)
        }
        catalog.inBackground { [self] session in
            session.tally(experimentID: preview.edited.id, goal: "") { [self] result in
                switch result {
                case .success(let tally):
                    var counts = Counts()
                    counts.exposed = tally.users.reduce(0) {
                        $0 + $1.counts.counted + $1.counts.crossed + $1.counts.forced
                    }
                    resume(preview, counts, after: nil, completion)
                case .failure(let error): completion(.failure(CoreError(error)))
                }
            }
        }
    }

    private func resume(
        _ preview: ExperimentPreview, _ former: Counts, after: Identifier?, _ completion: @escaping Completion
    ) {
        catalog.inBackground { [self] session in
            session.profiles(after: after, limit: Self.page) { [self] result in
                switch result {
                case .success(let page):
                    var counts = former
                    for (userID, profile) in page.profiles { preview.count(profile, of: userID, in: &counts.enrolled) }
                    guard let end = page.end else { return completion(.success(counts)) }
                    resume(preview, counts, after: end, completion)
                case .failure(let error): completion(.failure(CoreError(error)))
                }
            }
        }
    }
}
