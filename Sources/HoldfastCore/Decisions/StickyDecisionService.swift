public import Bucketing
import JSON
public import Storage

/// Makes sticky decisions for all protocols: reads the profile, decides, and stores new assignments before the
/// response. Then the service counts the decisions and records the exposures.
///
/// The service decides again if a decision is outdated when it is stored: another server has assigned the user
/// meanwhile, or there is a newer datafile. If the datafile lacks a user's stored variation, the service loads the
/// newest datafile before it treats the variation as removed.
///
/// Nearly all queries need a single attempt. ``decideAtOnce(_:in:_:)`` makes the attempt without a task, and reports
/// whether it was sufficient. If not, the caller uses ``decide(_:in:)``, which makes further attempts. Both use
/// `attempt`.
///
/// A service belongs to one event loop.
public final class StickyDecisionService {
    let session: any StoreSession
    let projects: ProjectView
    private let exposures: ExposureRecorder
    private let metrics: DecisionMetrics
    private let marks: EvaluationMarks
    /// Whether the store is a copy, as on an edge. While its upstream does not respond, a copy may refuse changes as
    /// read-only. Users then get decisions that are not stored, and their exposures enroll them later.
    private let isCopy: Bool

    /// The value of the session's ``Storage/StoreSession/projectNotices`` when the catalog was last read.
    private var readNotices: UInt64 = 0

    /// The number of attempts before the request fails with 503.
    private static let attempts = 5

    /// - Parameters:
    ///   - session: the store as the event loop uses it.
    ///   - isCopy: ``Storage/Store/isCopy``
    public init(
        session: any StoreSession, projects: ProjectView, exposures: ExposureRecorder,
        metrics: DecisionMetrics, uses: UseRecorder, isCopy: Bool
    ) {
        self.isCopy = isCopy
        self.session = session
        self.projects = projects
        self.exposures = exposures
        self.metrics = metrics
        marks = EvaluationMarks(uses)
    }

    /// The outcome of an attempt to decide.
    public enum Attempt: Sendable {
        /// The decisions are made, and new assignments are stored.
        case decided(Decisions)
        case failed(StorageError)
        /// There may be newer definitions.
        case outdated
        /// The assignments were not stored: another server has assigned the user meanwhile, or the profile has no room
        /// for the `refused` experiments.
        case taken(refused: [Identifier])
    }

    /// Decides in one attempt, if one is sufficient. Callbacks are used instead of a task, which would add a tenth to
    /// the instructions of a decision.
    ///
    /// - Parameter completion: called on the event loop. If the outcome is neither ``Attempt/decided(_:)`` nor
    ///   ``Attempt/failed(_:)``, the caller must use ``decide(_:in:)``.
    public func decideAtOnce(
        _ query: DecisionQuery, in project: Project, _ completion: @escaping (Attempt) -> Void
    ) {
        // The guard admits the queries that need only one profile. An anonymous id requires a second profile. A user
        // without an id has no profile. An audience may require the user's stored attributes. A forced variation
        // requires the newest definitions.
        guard query.anonymousID == nil, !query.user.isUnidentified, !Self.asksAttributes(query, project),
            !project.forcesVariations(on: query.user.id)
        else { return completion(.outdated) }
        session.profile(of: query.user.id) { [self] read in
            do throws(StorageError) {
                let profile = try read.get()
                guard session.projectNotices == readNotices else { return completion(.outdated) }
                let attributes = project.schema.isEmpty ? nil : StoredAttributes(schema: project.schema, record: nil)
                attempt(query, in: project, Stored(attributes: attributes, profile: profile), completion)
            } catch {
                completion(.failed(error))
            }
        }
    }

    /// Decides from stored records, and stores new assignments.
    ///
    /// - Parameters:
    ///   - refused: the experiments for which the profile has no room.
    ///   - isFirst: whether this is the first attempt. There may be a newer datafile, so a stored variation that this
    ///     datafile lacks is reported as ``Attempt/outdated``.
    ///   - isLast: whether the attempts to store assignments are used up. Decisions without new assignments still
    ///     succeed; others fail.
    private func attempt(
        _ query: DecisionQuery, in project: Project, _ stored: Stored, refusing refused: Set<Identifier> = [],
        isFirst: Bool = true, isLast: Bool = false, _ completion: @escaping (Attempt) -> Void
    ) {
        let (result, candidates) = evaluate(query, project, stored, refusing: refused)
        if result.hasStaleAssignment, isFirst { return completion(.outdated) }
        guard !candidates.isEmpty else { return completion(.decided(finish(query, result))) }
        // The store accepts only assignments that were decided with the newest datafile. A superseded project does not
        // have it.
        guard !isLast, !project.isSuperseded else { return completion(.failed(.staleDatafile)) }
        session.submit(Self.change(query, candidates, in: project)) { [self] change in
            switch change {
            case .success(let now) where Self.holds(now.profile, candidates):
                completion(.decided(finish(query, result, storing: candidates)))
            case .success(let now): completion(.taken(refused: now.refused))
            case .failure(.readOnly) where isCopy || !query.requiresStorage:
                completion(.decided(finish(query, result, notStoring: candidates)))
            case .failure(.staleDatafile): completion(.outdated)
            case .failure(let error): completion(.failed(error))
            }
        }
    }

    /// Decides and stores new assignments, in as many attempts as are needed.
    ///
    /// - Throws: ``StorageError/staleDatafile`` if definitions change in each of ``attempts``, or the error of the
    ///   store.
    public func decide(_ query: DecisionQuery, in project: Project) async throws(StorageError) -> Decisions {
        if query.user.isUnidentified { return decideWithoutUser(query, in: project) }
        var project = project
        // Another process may have erased the user, which removes the forced variation.
        if project.forcesVariations(on: query.user.id) { project = try await newest(project) }
        // The experiments for which the user's profile had no room in an earlier attempt.
        var refused: Set<Identifier> = []
        var number = 0
        while true {
            number += 1
            let stored = try await readStored(for: query, project)
            // A change by another process, such as a forced variation, must count as soon as it is acknowledged.
            if session.projectNotices != readNotices, number < Self.attempts {
                project = try await newest(project)
                continue
            }
            let outcome = await settled {
                attempt(
                    query, in: project, stored, refusing: refused, isFirst: number == 1, isLast: number > Self.attempts,
                    $0)
            }
            switch outcome {
            case .decided(let decisions): return decisions
            case .failed(let error): throw error
            case .outdated: project = try await newest(project)
            case .taken(let others): refused.formUnion(others)
            }
        }
    }

    /// Decides for a user without an id. Nothing is read, stored or recorded.
    private func decideWithoutUser(_ query: DecisionQuery, in project: Project) -> Decisions {
        let attributes = project.schema.isEmpty ? nil : StoredAttributes(schema: project.schema, record: nil)
        let result = query.evaluate(
            in: project, StickyAssignments(nil, query.user.id, project, attributes: attributes))
        for decision in result.value.flags { metrics.count(decision.source) }
        return result.value
    }

    /// The stored records of a user.
    private struct Stored {
        var attributes: StoredAttributes?
        var profile: ProfileRecord?
        /// The profile of the user before login.
        var anonymous: ProfileRecord?
    }

    /// Reads the records of a user that the decisions of a query need.
    private func readStored(for query: DecisionQuery, _ project: Project) async throws(StorageError) -> Stored {
        var stored = Stored()
        if Self.asksAttributes(query, project) {
            let record = try await completed { session.attributes(of: query.user.id, $0) }
            stored.attributes = StoredAttributes(schema: project.schema, record: record)
        } else if !project.schema.isEmpty {
            stored.attributes = StoredAttributes(schema: project.schema, record: nil)
        }
        // Read also for a query that ignores profiles, because overrides still count.
        stored.profile = try await completed { session.profile(of: query.user.id, $0) }
        if let id = query.anonymousID { stored.anonymous = try await completed { session.profile(of: id, $0) } }
        return stored
    }

    /// Whether an audience uses an attribute that the request lacks, so that the user's stored attributes are needed.
    private static func asksAttributes(_ query: DecisionQuery, _ project: Project) -> Bool {
        project.askedAttributes.contains { query.user.attributes[$0] == nil }
    }

    /// Returns the change that stores new assignments.
    private static func change(
        _ query: DecisionQuery, _ candidates: [ProfileChange.Candidate], in project: Project
    ) -> ProfileChange {
        ProfileChange(
            userID: query.user.id,
            operation: .assign(candidates, decidedWith: project.catalogVersion, anonymousID: query.anonymousID))
    }

    /// Decides from stored records.
    ///
    /// - Parameter refused: the experiments for which the store has reported that the profile has no room. A query that
    ///   stores nothing gets no such report, so this function determines them by the store's rules and decides again.
    /// - Returns: the decisions, and the assignments to store.
    private func evaluate(
        _ query: DecisionQuery, _ project: Project, _ stored: Stored, refusing refused: Set<Identifier>
    ) -> (DecisionResult<Decisions>, [ProfileChange.Candidate]) {
        var refused = refused
        while true {
            let assignments = StickyAssignments(
                stored.profile, anonymous: stored.anonymous, query.user.id, project, attributes: stored.attributes,
                refused: refused)
            let result = query.evaluate(in: project, assignments)
            let candidates = candidates(for: result.newAssignments, in: project)
            if query.storesAssignments || candidates.isEmpty { return (result, candidates) }
            let others = projects.catalog.rules.refused(candidates, in: stored.profile)
            if others.isEmpty { return (result, []) }
            refused.formUnion(others)
        }
    }

    /// Counts the final decisions, and records the user's exposures.
    ///
    /// - Parameters:
    ///   - stored: the new assignments that were stored.
    ///   - unstored: the new assignments that could not be stored.
    private func finish(
        _ query: DecisionQuery, _ result: DecisionResult<Decisions>, storing stored: [ProfileChange.Candidate] = [],
        notStoring unstored: [ProfileChange.Candidate] = []
    ) -> Decisions {
        var decisions = result.value
        if !unstored.isEmpty, query.options.contains(.includeReasons) {
            decisions.add(
                isCopy
                    ? "The assignment was not stored: the upstream of this edge does not respond."
                    : "The assignment was not stored: the server is read-only.",
                toExperiments: unstored.map(\.experimentID))
        }
        for decision in decisions.flags { metrics.count(decision.source) }
        for decision in decisions.experiments { metrics.count(decision.source) }
        if query.subject.namesFlags {
            for decision in decisions.flags {
                marks.note(decision.flagKey, decision.variation?.key, in: decisions.project)
            }
            for decision in decisions.experiments {
                marks.note(decision.experiment.key, decision.variation?.key, in: decisions.project)
            }
        }
        exposures.record(
            result.impressions, of: query.user, enrolledIn: stored.lazy.map(\.experimentID),
            enrolling: isCopy ? unstored.map(\.experimentID) : [], in: decisions.project)
        return decisions
    }

    /// Returns the assignments to store.
    ///
    /// A new assignment may replace an assignment to a variation that this datafile lacks. If the datafile of another
    /// project has that variation, the stored assignment is still in use there, so it stays, and the new assignment is
    /// not stored.
    private func candidates(for assignments: [NewAssignment], in project: Project) -> [ProfileChange.Candidate] {
        assignments.compactMap { new in
            if let stale = new.staleVariationID,
                projects.hasVariation(stale, ofExperiment: new.experimentID, besides: project.sdkKey)
            {
                return nil
            }
            return ProfileChange.Candidate(
                experimentID: new.experimentID, variationID: new.variationID, replacing: new.staleVariationID,
                isFromAnonymousProfile: new.isFromAnonymousProfile)
        }
    }

    /// Whether the profile already has the variations of all candidates.
    private static func holds(_ profile: ProfileRecord?, _ candidates: [ProfileChange.Candidate]) -> Bool {
        candidates.allSatisfy { profile?.variationID(for: $0.experimentID) == $0.variationID }
    }

    /// Reads the catalog again, and returns the current state of a project.
    private func newest(_ former: Project) async throws(StorageError) -> Project {
        let notices = session.projectNotices
        try await projects.update()
        readNotices = max(readNotices, notices)
        return projects.project(former.sdkKey) ?? former
    }
}
