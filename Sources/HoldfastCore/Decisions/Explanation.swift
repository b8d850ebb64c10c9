public import Bucketing
public import Storage

/// Why a user gets a variation of an experiment, or none: the steps of the decision, from the code that decides.
public struct Explanation: Sendable {
    public let experiment: Experiment
    public let sdkKey: String
    public let version: Int64
    public let revision: String
    /// Whether the datafile is the active one.
    public let isActive: Bool
    public let decision: ExperimentDecision
    public let steps: [DecisionStep]
    /// The user's profile as it is now.
    public let profile: ProfileRecord?
}

extension StickyDecisionService {
    /// Explains what a user would get, with what is stored about the user now. Stores nothing.
    ///
    /// - Parameters:
    ///   - name: the key or id of the experiment.
    ///   - time: explains with the datafile that was active then; `nil` for the active one.
    ///   - showsValues: whether to include the values of the user's attributes.
    ///   - completion: called on the event loop. 404 if the datafile does not have the experiment, or is not kept.
    public func explain(
        _ name: Identifier, for userID: Identifier, in project: Project, at time: Timestamp?,
        showingValues showsValues: Bool, completion: @escaping @Sendable (Result<Explanation, CoreError>) -> Void
    ) {
        guard let time else {
            let datafile = ExplainedDatafile(
                version: project.version, revision: project.datafile.revision, isActive: true,
                datafile: project.datafile)
            return explain(name, userID, project, datafile, showsValues, completion)
        }
        // Safe: used on the loop's thread only.
        nonisolated(unsafe) let service = self
        let executor = executor
        projects.datafile(of: project, activeAt: time) { result in
            executor.submit {
                switch result {
                case .success(let datafile):
                    service.explain(name, userID, project, datafile, showsValues, completion)
                case .failure(let error): completion(.failure(error))
                }
            }
        }
    }

    private func explain(
        _ name: Identifier, _ userID: Identifier, _ project: Project, _ used: ExplainedDatafile, _ showsValues: Bool,
        _ completion: @escaping @Sendable (Result<Explanation, CoreError>) -> Void
    ) {
        guard let experiment = used.datafile.experiment(keyOrID: name) else {
            return completion(
                .failure(
                    CoreError(
                        .notFound,
                        "no experiment has the key or id '\(name)' in the datafile of version \(used.version)"
                            + Spelling.hint(for: name, among: used.datafile.experiments.lazy.map(\.key)))))
        }
        readStored(of: userID, project) { [projects] read in
            switch read {
            case .failure(let error): completion(.failure(CoreError(error)))
            case .success(let (profile, attributes)):
                let full = ProfileChange.Proposal(experimentID: experiment.id, variationID: "")
                let stored = StickyAssignments(
                    profile, userID, project, attributes: attributes,
                    refused: Set(projects.catalog.rules.refused([full], in: profile)))
                let (decision, steps) = DecisionService(datafile: used.datafile).explain(
                    experiment, for: User(id: userID), stored: stored, showingValues: showsValues)
                completion(
                    .success(
                        Explanation(
                            experiment: experiment, sdkKey: project.sdkKey, version: used.version,
                            revision: used.revision, isActive: used.isActive, decision: decision, steps: steps,
                            profile: profile)))
            }
        }
    }

    private func readStored(
        of userID: Identifier, _ project: Project,
        _ completion: @escaping (Result<(ProfileRecord?, StoredAttributes), StorageError>) -> Void
    ) {
        session.attributes(of: userID) { [session] attributes in
            switch attributes {
            case .failure(let error): completion(.failure(error))
            case .success(let record):
                session.profile(of: userID) { profile in
                    completion(profile.map { ($0, StoredAttributes(schema: project.schema, record: record)) })
                }
            }
        }
    }
}

/// A datafile that a decision is explained with.
struct ExplainedDatafile: Sendable {
    let version: Int64
    let revision: String
    let isActive: Bool
    let datafile: Datafile
}

extension ProjectView {
    /// Reads and compiles the datafile of a project that was active at a time.
    ///
    /// - Parameter completion: called on a queue of the catalog.
    func datafile(
        of project: Project, activeAt time: Timestamp,
        _ completion: @escaping @Sendable (Result<ExplainedDatafile, CoreError>) -> Void
    ) {
        catalog.inBackground { session in
            session.datafile(sdkKey: project.sdkKey, activeAt: time) { read in
                do throws(CoreError) {
                    completion(.success(try Self.compile(read, of: project, at: time)))
                } catch {
                    completion(.failure(error))
                }
            }
        }
    }

    private static func compile(
        _ read: Result<StoredDatafile?, StorageError>, of project: Project, at time: Timestamp
    ) throws(CoreError) -> ExplainedDatafile {
        let found: StoredDatafile?
        switch read {
        case .success(let stored): found = stored
        case .failure(let error): throw CoreError(error)
        }
        guard let found else {
            throw CoreError(.notFound, "no datafile is kept that was active at \(time.rfc3339)")
        }
        let isActive = found.version == project.version
        do throws(CoreError) {
            return ExplainedDatafile(
                version: found.version, revision: found.revision, isActive: isActive,
                datafile: isActive ? project.datafile : try Project.compile(found.content))
        } catch {
            throw CoreError(.conflict, "the datafile of version \(found.version) is not usable here: \(error.detail)")
        }
    }
}
