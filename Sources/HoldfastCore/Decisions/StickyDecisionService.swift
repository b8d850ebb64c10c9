import Bucketing
import JSON
public import Storage

/// Makes decisions that stick: reads the profile, decides, and stores new assignments before the response. Then it
/// counts the decisions and records the exposures, for every protocol.
///
/// The service decides again if a decision is outdated at the commit: if another server has assigned the user
/// meanwhile, or if there is a newer datafile. If the datafile lacks the variation that a user has, the newest datafile
/// is loaded before the variation counts as removed.
///
/// Belongs to one event loop.
public final class StickyDecisionService {
    public typealias Completion = @Sendable (Result<Decisions, StorageError>) -> Void

    /// A query with its completion. A class, because each step of a decision passes it on.
    private final class Request: Sendable {
        let query: DecisionQuery
        /// The experiments that the user's profile has turned out to have no room for.
        let refused: Set<Identifier>
        let completion: Completion

        init(_ query: DecisionQuery, refused: Set<Identifier> = [], _ completion: @escaping Completion) {
            self.query = query
            self.refused = refused
            self.completion = completion
        }

        func refusing(_ experimentIDs: [Identifier]) -> Request {
            Request(query, refused: refused.union(experimentIDs), completion)
        }
    }

    let session: any ProfileStore & AttributeStore
    let projects: ProjectView
    let executor: any StoreExecutor
    private let exposures: ExposureRecorder
    private let metrics: DecisionMetrics

    /// The number of attempts before the request fails with 503.
    private static let attempts = 5

    /// - Parameters:
    ///   - session: the store as the event loop uses it.
    ///   - executor: the event loop.
    public init(
        session: any ProfileStore & AttributeStore, projects: ProjectView, executor: any StoreExecutor,
        exposures: ExposureRecorder, metrics: DecisionMetrics
    ) {
        self.session = session
        self.projects = projects
        self.executor = executor
        self.exposures = exposures
        self.metrics = metrics
    }

    /// - Parameter completion: called with the decisions, on the event loop.
    public func decide(_ query: DecisionQuery, in project: Project, completion: @escaping Completion) {
        let request = Request(query, completion)
        guard project.forcesVariations(on: query.user.id) else {
            return readAttributes(request, project, attempts: Self.attempts)
        }
        // Another process may have erased the user, and with the user the forced variation.
        decideWithNewestDatafile(request, project, attempts: Self.attempts)
    }

    private func readAttributes(_ request: Request, _ project: Project, attempts: Int) {
        guard project.askedAttributes.contains(where: { request.query.user.attributes[$0] == nil }) else {
            let known = project.schema.isEmpty ? nil : StoredAttributes(schema: project.schema, record: nil)
            return readProfile(request, project, known, attempts: attempts)
        }
        session.attributes(of: request.query.user.id) { read in
            switch read {
            case .success(let record):
                let known = StoredAttributes(schema: project.schema, record: record)
                self.readProfile(request, project, known, attempts: attempts)
            case .failure(let error):
                request.completion(.failure(error))
            }
        }
    }

    private func readProfile(
        _ request: Request, _ project: Project, _ attributes: StoredAttributes?, attempts: Int
    ) {
        // Also for a query that ignores profiles: overrides count nevertheless.
        session.profile(of: request.query.user.id) { read in
            switch read {
            case .success(let profile):
                guard let anonymousID = request.query.anonymousID else {
                    return self.decide(request, project, attributes, profile, attempts: attempts)
                }
                self.readAnonymous(anonymousID, request, project, attributes, profile, attempts: attempts)
            case .failure(let error): request.completion(.failure(error))
            }
        }
    }

    private func readAnonymous(
        _ anonymousID: Identifier, _ request: Request, _ project: Project, _ attributes: StoredAttributes?,
        _ profile: ProfileRecord?, attempts: Int
    ) {
        session.profile(of: anonymousID) { read in
            switch read {
            case .success(let anonymous):
                self.decide(request, project, attributes, profile, beside: anonymous, attempts: attempts)
            case .failure(let error): request.completion(.failure(error))
            }
        }
    }

    private func decide(
        _ request: Request, _ project: Project, _ attributes: StoredAttributes?, _ profile: ProfileRecord?,
        beside anonymous: ProfileRecord? = nil, attempts: Int
    ) {
        let stored = StickyAssignments(
            profile, beside: anonymous, request.query.user.id, project, attributes: attributes,
            refused: request.refused)
        let result = request.query.decide(in: project, stored)
        if result.hasStaleAssignment, attempts == Self.attempts {
            return decideWithNewestDatafile(request, project, attempts: attempts - 1)
        }
        let proposals = proposals(for: result.newAssignments, in: project)
        guard !proposals.isEmpty else { return finish(request, result) }
        guard request.query.storesAssignments else {
            let refused = projects.catalog.rules.refused(proposals, in: profile)
            guard !refused.isEmpty else { return finish(request, result) }
            return decide(
                request.refusing(refused), project, attributes, profile, beside: anonymous, attempts: attempts)
        }
        guard attempts > 0, !project.isSuperseded else { return request.completion(.failure(.staleDatafile)) }
        let change = ProfileChange(
            userID: request.query.user.id,
            operation: .assign(proposals, decidedWith: project.catalogVersion, beside: request.query.anonymousID))
        session.submit(change) { [self] stored in
            switch stored {
            case .success(let now) where Self.holds(now.profile, proposals):
                finish(request, result, storing: proposals)
            case .success(let now) where !now.refused.isEmpty:
                readProfile(request.refusing(now.refused), project, attributes, attempts: attempts - 1)
            case .success where request.query.anonymousID != nil:
                // The anonymous profile may have changed, too.
                readProfile(request, project, attributes, attempts: attempts - 1)
            case .success(let now):
                decide(request, project, attributes, now.profile, attempts: attempts - 1)
            case .failure(.readOnly) where !request.query.requiresStorage:
                finish(request, result)
            case .failure(.staleDatafile):
                decideWithNewestDatafile(request, project, attempts: attempts - 1)
            case .failure(let error):
                request.completion(.failure(error))
            }
        }
    }

    /// Counts the final decisions, records the user's exposures, and calls the completion.
    ///
    /// - Parameter stored: the assignments that this request has stored.
    private func finish(
        _ request: Request, _ result: DecisionResult<Decisions>, storing stored: [ProfileChange.Proposal] = []
    ) {
        let decisions = result.value
        for decision in decisions.flags { metrics.count(decision.source) }
        for decision in decisions.experiments { metrics.count(decision.source) }
        exposures.record(
            result.impressions, of: request.query.user, enrolledIn: stored.lazy.map(\.experimentID),
            in: decisions.project)
        request.completion(.success(decisions))
    }

    /// Returns the assignments to store. If the datafile of another project has the variation that this one lacks, the
    /// stored assignment stays, and the user is bucketed here without being enrolled.
    private func proposals(for assignments: [NewAssignment], in project: Project) -> [ProfileChange.Proposal] {
        assignments.compactMap { new in
            if let stale = new.staleVariationID,
                projects.hasVariation(stale, ofExperiment: new.experimentID, besides: project.sdkKey)
            {
                return nil
            }
            return ProfileChange.Proposal(
                experimentID: new.experimentID, variationID: new.variationID, replacing: new.staleVariationID,
                isBorrowed: new.isBorrowed)
        }
    }

    /// Whether the profile has all proposed assignments.
    private static func holds(_ profile: ProfileRecord?, _ proposals: [ProfileChange.Proposal]) -> Bool {
        proposals.allSatisfy { profile?.variationID(for: $0.experimentID) == $0.variationID }
    }

    /// Decides again, with everything that other processes have stored until now.
    private func decideWithNewestDatafile(_ request: Request, _ former: Project, attempts: Int) {
        // Safe: used on the loop's thread only.
        nonisolated(unsafe) let service = self
        let executor = executor
        projects.update { result in
            executor.submit {
                switch result {
                case .success:
                    let project = service.projects.project(former.sdkKey) ?? former
                    service.readAttributes(request, project, attempts: attempts)
                case .failure(let error):
                    request.completion(.failure(error))
                }
            }
        }
    }
}
