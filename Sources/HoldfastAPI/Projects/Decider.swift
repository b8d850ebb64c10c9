import Bucketing
import Storage

/// Makes decisions that stick: reads the profile, decides, and stores what is new before anything is answered. When
/// another server was quicker, its assignment is what counts, and the decision is made again with it.
///
/// Belongs to one event loop.
struct Decider {
    let profiles: any ProfileStore
    let reader: any ProfileReader

    /// - Parameters:
    ///   - storesAssignments: whether new assignments are stored; otherwise the decision leaves no trace.
    ///   - decide: makes the decision with what is stored of the user; may be called twice.
    ///   - completion: called with the decision, on a thread of the store's when something was stored.
    func decide<Value: Sendable>(
        for userID: Identifier, in project: Project, storesAssignments: Bool = true,
        _ decide: @escaping @Sendable (StickyAssignments) -> DecisionResult<Value>,
        completion: @escaping @Sendable (Result<DecisionResult<Value>, StorageError>) -> Void
    ) {
        let profiles = profiles
        reader.profile(of: userID) { read in
            switch read {
            case .success(let profile):
                let result = decide(StickyAssignments(profile, userID, project))
                guard storesAssignments, !result.newAssignments.isEmpty else { return completion(.success(result)) }
                Self.store(result.newAssignments, for: userID, in: profiles) { stored in
                    completion(
                        stored.map { now in
                            Self.holds(now, result.newAssignments)
                                ? result : decide(StickyAssignments(now, userID, project))
                        })
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
        profiles.submit(ProfileChange(userID: userID, operation: .assign(proposals))) { result in
            completion(result.map(\.profile))
        }
    }

    /// Whether the profile has what was decided.
    private static func holds(_ profile: ProfileRecord?, _ assignments: [NewAssignment]) -> Bool {
        assignments.allSatisfy { profile?.variationID(for: $0.experimentID) == $0.variationID }
    }
}
