import Bucketing
import HTTPServer
import Storage

/// Makes decisions that stick: reads the profile, decides, and stores what is new before anything is answered. When
/// another server was quicker, its assignment is what counts, and the decision is made again with it.
///
/// Belongs to one event loop.
struct Decider {
    let profiles: any ProfileStore
    let reader: any UserReader
    let loop: EventLoop

    /// - Parameters:
    ///   - usesProfile: whether what is stored of the user's assignments counts.
    ///   - storesAssignments: whether new assignments are stored; otherwise the decision leaves no trace.
    ///   - decide: makes the decision with what is stored of the user; may be called twice.
    ///   - completion: called with the decision, on the event loop.
    func decide<Value: Sendable>(
        for user: User, in project: Project, usesProfile: Bool = true, storesAssignments: Bool = true,
        _ decide: @escaping @Sendable (StickyAssignments) -> DecisionResult<Value>,
        completion: @escaping @Sendable (Result<DecisionResult<Value>, StorageError>) -> Void
    ) {
        guard needsAttributes(of: user, in: project) else {
            let known = project.schema.isEmpty ? nil : StoredAttributes(schema: project.schema, record: nil)
            return self.decide(user.id, project, known, usesProfile, storesAssignments, decide, completion)
        }
        reader.attributes(of: user.id) { read in
            switch read {
            case .success(let record):
                let known = StoredAttributes(schema: project.schema, record: record)
                self.decide(user.id, project, known, usesProfile, storesAssignments, decide, completion)
            case .failure(let error):
                completion(.failure(error))
            }
        }
    }

    /// Whether an audience asks for a stored attribute of which the request says nothing.
    private func needsAttributes(of user: User, in project: Project) -> Bool {
        project.askedAttributes.contains { user.attributes[$0] == nil }
    }

    private func decide<Value: Sendable>(
        _ userID: Identifier, _ project: Project, _ known: StoredAttributes?, _ usesProfile: Bool,
        _ storesAssignments: Bool, _ decide: @escaping @Sendable (StickyAssignments) -> DecisionResult<Value>,
        _ completion: @escaping @Sendable (Result<DecisionResult<Value>, StorageError>) -> Void
    ) {
        guard usesProfile else {
            return completion(.success(decide(StickyAssignments(nil, userID, project, attributes: known))))
        }
        let (profiles, loop) = (profiles, loop)
        reader.profile(of: userID) { read in
            switch read {
            case .success(let profile):
                let result = decide(StickyAssignments(profile, userID, project, attributes: known))
                guard storesAssignments, !result.newAssignments.isEmpty else { return completion(.success(result)) }
                Self.store(result.newAssignments, for: userID, in: profiles) { stored in
                    // All that is written waits for the store's thread, which has no time for answers.
                    loop.run {
                        completion(
                            stored.map { now in
                                Self.holds(now, result.newAssignments)
                                    ? result : decide(StickyAssignments(now, userID, project, attributes: known))
                            })
                    }
                }
            case .failure(let error):
                completion(.failure(error))
            }
        }
    }

    private static func store(
        _ assignments: [NewAssignment], for userID: Identifier, in profiles: any ProfileStore,
        _ completion: @escaping @Sendable (Result<ProfileRecord?, StorageError>) -> Void
    ) {
        let proposals = assignments.map {
            ProfileChange.Proposal(
                experimentID: $0.experimentID, variationID: $0.variationID, replacing: $0.staleVariationID)
        }
        let change = ProfileChange(userID: userID, operation: .assign(proposals))
        profiles.submit(change) { completion($0.map(\.profile)) }
    }

    /// Whether the profile has what was decided.
    private static func holds(_ profile: ProfileRecord?, _ assignments: [NewAssignment]) -> Bool {
        assignments.allSatisfy { profile?.variationID(for: $0.experimentID) == $0.variationID }
    }
}
