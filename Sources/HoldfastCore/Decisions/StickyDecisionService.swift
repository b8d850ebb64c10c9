public import Bucketing
import JSON
public import Storage

/// Makes decisions that stick: reads the profile, decides, and stores what is new before anything is answered.
///
/// A decision is made again when it no longer holds at the commit: when another server has assigned the user in the
/// meantime, or when the newest datafile is another than the one it was made with. A variation that is assigned to the
/// user and not in the datafile is not taken for gone before the newest datafile has been looked at.
///
/// Belongs to one event loop.
public final class StickyDecisionService {
    /// A decision with the project that it was made with, which may be newer than the one that was asked.
    public struct Decided<Value: Sendable>: Sendable {
        public let result: DecisionResult<Value>
        public let project: Project
    }

    /// What is decided, and for whom. A class: each step of a decision hands it on.
    private final class Request<Value: Sendable>: Sendable {
        let user: User
        let anonymousID: Identifier?
        let usesProfile: Bool
        let storesAssignments: Bool
        let decide: @Sendable (Project, StickyAssignments) -> DecisionResult<Value>
        let completion: @Sendable (Result<Decided<Value>, StorageError>) -> Void

        init(
            user: User, anonymousID: Identifier?, usesProfile: Bool, storesAssignments: Bool,
            decide: @escaping @Sendable (Project, StickyAssignments) -> DecisionResult<Value>,
            completion: @escaping @Sendable (Result<Decided<Value>, StorageError>) -> Void
        ) {
            self.user = user
            self.anonymousID = anonymousID
            self.usesProfile = usesProfile
            self.storesAssignments = storesAssignments
            self.decide = decide
            self.completion = completion
        }
    }

    let session: any ProfileStore & AttributeStore
    let projects: ProjectView
    let executor: any StoreExecutor

    /// How often a decision is made before the caller is told to try again later.
    private static let attempts = 5

    /// - Parameters:
    ///   - session: the store as the event loop uses it.
    ///   - executor: the event loop.
    public init(session: any ProfileStore & AttributeStore, projects: ProjectView, executor: any StoreExecutor) {
        self.session = session
        self.projects = projects
        self.executor = executor
    }

    /// - Parameters:
    ///   - anonymousID: the user's id before login, if known: where the user has no assignment, that of this profile counts
    ///     and is stored for the user.
    ///   - usesProfile: whether what is stored of the user's assignments counts.
    ///   - storesAssignments: whether new assignments are stored; otherwise the decision leaves no trace.
    ///   - decide: makes the decision with what is stored of the user; may be called several times.
    ///   - completion: called with the decision, on the event loop.
    public func decide<Value: Sendable>(
        for user: User, beside anonymousID: Identifier? = nil, in project: Project, usesProfile: Bool = true,
        storesAssignments: Bool = true,
        _ decide: @escaping @Sendable (Project, StickyAssignments) -> DecisionResult<Value>,
        completion: @escaping @Sendable (Result<Decided<Value>, StorageError>) -> Void
    ) {
        let request = Request(
            user: user, anonymousID: anonymousID == user.id ? nil : anonymousID, usesProfile: usesProfile,
            storesAssignments: storesAssignments, decide: decide, completion: completion)
        readAttributes(request, project, attempts: Self.attempts)
    }

    private func readAttributes<Value>(_ request: Request<Value>, _ project: Project, attempts: Int) {
        guard project.askedAttributes.contains(where: { request.user.attributes[$0] == nil }) else {
            let known = project.schema.isEmpty ? nil : StoredAttributes(schema: project.schema, record: nil)
            return readProfile(request, project, known, attempts: attempts)
        }
        session.attributes(of: request.user.id) { read in
            switch read {
            case .success(let record):
                let known = StoredAttributes(schema: project.schema, record: record)
                self.readProfile(request, project, known, attempts: attempts)
            case .failure(let error):
                request.completion(.failure(error))
            }
        }
    }

    private func readProfile<Value>(
        _ request: Request<Value>, _ project: Project, _ attributes: StoredAttributes?, attempts: Int
    ) {
        guard request.usesProfile else {
            return decide(request, project, attributes, nil, attempts: attempts)
        }
        session.profile(of: request.user.id) { read in
            switch read {
            case .success(let profile):
                guard let anonymousID = request.anonymousID else {
                    return self.decide(request, project, attributes, profile, attempts: attempts)
                }
                self.readAnonymous(anonymousID, request, project, attributes, profile, attempts: attempts)
            case .failure(let error): request.completion(.failure(error))
            }
        }
    }

    private func readAnonymous<Value>(
        _ anonymousID: Identifier, _ request: Request<Value>, _ project: Project, _ attributes: StoredAttributes?,
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

    private func decide<Value>(
        _ request: Request<Value>, _ project: Project, _ attributes: StoredAttributes?, _ profile: ProfileRecord?,
        beside anonymous: ProfileRecord? = nil, attempts: Int
    ) {
        let result = request.decide(
            project,
            StickyAssignments(profile, beside: anonymous, request.user.id, project, attributes: attributes))
        if result.hasStaleAssignment, attempts == Self.attempts {
            return decideWithNewestDatafile(request, project, attempts: attempts - 1)
        }
        let decided = Decided(result: result, project: project)
        let proposals = request.storesAssignments ? proposals(for: result.newAssignments, in: project) : []
        guard !proposals.isEmpty else { return request.completion(.success(decided)) }
        guard attempts > 0, !project.isSuperseded else { return request.completion(.failure(.staleDatafile)) }
        let change = ProfileChange(
            userID: request.user.id,
            operation: .assign(proposals, decidedWith: project.catalogVersion, beside: request.anonymousID))
        session.submit(change) { [self] stored in
            switch stored {
            case .success(let now) where Self.holds(now.profile, proposals):
                request.completion(.success(decided))
            case .success where request.anonymousID != nil:
                // The anonymous profile may have changed, too.
                readProfile(request, project, attributes, attempts: attempts - 1)
            case .success(let now):
                decide(request, project, attributes, now.profile, attempts: attempts - 1)
            case .failure(.staleDatafile):
                decideWithNewestDatafile(request, project, attempts: attempts - 1)
            case .failure(let error):
                request.completion(.failure(error))
            }
        }
    }

    /// What is to be stored. A variation that the datafile of another project lists under the same experiment id is not
    /// gone: it stays, and the user is bucketed here without being enrolled.
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

    /// Whether the profile has what was proposed.
    private static func holds(_ profile: ProfileRecord?, _ proposals: [ProfileChange.Proposal]) -> Bool {
        proposals.allSatisfy { profile?.variationID(for: $0.experimentID) == $0.variationID }
    }

    /// Decides again, with all that other processes have stored until now.
    private func decideWithNewestDatafile<Value>(_ request: Request<Value>, _ former: Project, attempts: Int) {
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

/// A user's stored data as a decision sees it. Forced variations take precedence over the profile.
public struct StickyAssignments: StoredAssignments {
    public let profile: ProfileRecord?
    /// The ids of forced variations, by experiment id.
    public let forcedVariations: [Identifier: Identifier]?
    public let attributes: (any AttributeSource)?
    /// `nil` for a profile that is small enough for a linear search.
    private let index: AssignmentIndex?
    /// The profile whose assignments count where the user has none; `nil` if there is none.
    private let borrowed: AssignmentIndex?

    /// - Parameter anonymous: the user's anonymous profile.
    init(
        _ profile: ProfileRecord?, beside anonymous: ProfileRecord? = nil, _ userID: Identifier, _ project: Project,
        attributes: StoredAttributes? = nil
    ) {
        self.profile = profile
        self.attributes = attributes
        index = profile.flatMap { $0.count > AssignmentIndex.walkable ? AssignmentIndex($0) : nil }
        borrowed = anonymous.map { AssignmentIndex($0) }
        forcedVariations = project.forcedVariations.isEmpty ? nil : project.forcedVariations[userID]
    }

    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        if let profile,
            let entry = index == nil ? profile.entry(for: experimentID) : index?.entry(for: experimentID)
        {
            return StoredAssignment(
                variationID: profile.variationID(of: entry), isOverride: entry.source == .override)
        }
        guard let borrowed, let entry = borrowed.entry(for: experimentID) else { return nil }
        return StoredAssignment(
            variationID: borrowed.profile.variationID(of: entry), isOverride: entry.source == .override,
            isBorrowed: true)
    }
}

/// Indexes a large profile by experiment after several look-ups, when the index pays off.
private final class AssignmentIndex: @unchecked Sendable {
    // Safe: the decisions of a request use it one after the other, on its event loop.
    let profile: ProfileRecord
    private var lookups = 0
    private var entries: [Identifier: ProfileRecord.Entry] = [:]

    /// The largest profile, in assignments, that needs no index.
    static let walkable = 32
    /// The number of look-ups that take about as long as indexing the profile.
    private static let few = 8

    init(_ profile: ProfileRecord) {
        self.profile = profile
    }

    func entry(for experimentID: Identifier) -> ProfileRecord.Entry? {
        lookups += 1
        guard lookups > Self.few else { return profile.entry(for: experimentID) }
        if entries.isEmpty {
            for entry in profile.entries { entries[profile.experimentID(of: entry)] = entry }
        }
        return entries[experimentID]
    }
}
