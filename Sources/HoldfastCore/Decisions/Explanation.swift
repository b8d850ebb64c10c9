public import Bucketing
public import Chronology
import Definitions
public import Storage

/// Explains why a user gets a variation of an experiment, or none. The steps are recorded by the same code that
/// decides, so they cannot differ from the decision.
public struct Explanation: Sendable {
    public let experiment: Experiment
    public let sdkKey: String
    /// The version of the datafile that the explanation uses. The store numbers all datafiles.
    public let version: Int64
    /// The member `revision` of this datafile.
    public let revision: String
    /// Whether the datafile is the active one.
    public let isActive: Bool
    public let decision: ExperimentDecision
    /// The steps that lead to the decision, in their order.
    public let steps: [DecisionStep]
    /// The user's current profile; `nil` if there is none.
    public let profile: ProfileRecord?
}

extension StickyDecisionService {
    /// Explains the decision that a user would get, from the current profile and attributes. Stores nothing.
    ///
    /// - Parameters:
    ///   - name: the key or id of the experiment.
    ///   - time: the time whose active datafile is used; `nil` for the currently active one.
    ///   - showsValues: whether to include the values of the user's attributes.
    /// - Throws: 404 if the datafile does not have the experiment, or if no datafile of that time is kept; 409 if that
    ///   datafile does not compile with this version.
    public func explain(
        _ name: Identifier, for userID: Identifier, in project: Project, at time: Instant?,
        showingValues showsValues: Bool
    ) async throws -> Explanation {
        let used =
            if let time {
                try await projects.datafile(of: project, activeAt: time)
            } else {
                ExplainedDatafile(activeIn: project)
            }
        let experiment = try used.experiment(name)
        let record = try await completed { session.attributes(of: userID, $0) }
        let profile = try await completed { session.profile(of: userID, $0) }
        // Only the number of assignments decides whether the profile has room, so any variation will do.
        let candidate = ProfileChange.Candidate(experimentID: experiment.id, variationID: "")
        let stored = StickyAssignments(
            profile, userID, project, attributes: StoredAttributes(schema: project.schema, record: record),
            refused: Set(projects.catalog.rules.refused([candidate], in: profile)))
        let (decision, steps) = DecisionService(datafile: used.datafile).explain(
            experiment, for: User(id: userID), stored: stored, showingValues: showsValues)
        return Explanation(
            experiment: experiment, sdkKey: project.sdkKey, version: used.version, revision: used.revision,
            isActive: used.isActive, decision: decision, steps: steps, profile: profile)
    }
}

/// The datafile that an explanation uses.
struct ExplainedDatafile: Sendable {
    let version: Int64
    let revision: String
    let isActive: Bool
    let datafile: Datafile
}

extension ExplainedDatafile {
    init(activeIn project: Project) {
        self.init(
            version: project.version, revision: project.datafile.revision, isActive: true, datafile: project.datafile)
    }

    /// Returns the experiment with a key or id.
    ///
    /// - Throws: 404 if there is none.
    fileprivate func experiment(_ name: Identifier) throws(CoreError) -> Experiment {
        guard let experiment = datafile.experiment(keyOrID: name) else {
            throw CoreError(
                .notFound,
                "no experiment has the key or id '\(name)' in the datafile of version \(version)"
                    + Spelling.hint(for: name, among: datafile.experiments.lazy.map(\.key)))
        }
        return experiment
    }
}

extension ProjectView {
    /// Reads and compiles the datafile of a project that was active at a time.
    ///
    /// - Throws: 404 if that datafile is not kept; 409 if it does not compile.
    func datafile(of project: Project, activeAt time: Instant) async throws -> ExplainedDatafile {
        try await catalog.inBackground { session in
            let found = try await session.read(.datafile(sdkKey: project.sdkKey, activeAt: time))
            guard let found else {
                throw CoreError(.notFound, "no datafile is kept that was active at \(time.rfc3339)")
            }
            let isActive = found.version == project.version
            do throws(CoreError) {
                return ExplainedDatafile(
                    version: found.version, revision: found.revision, isActive: isActive,
                    datafile: isActive ? project.datafile : try Datafile.usable(found.content))
            } catch {
                throw CoreError(
                    .conflict, "the datafile of version \(found.version) is not usable here: \(error.detail)")
            }
        }
    }
}
