public import Storage

/// Records the events that clients report. An exposure that names a variation enrolls a user who has no assignment, as
/// far as the newest definitions have the variation.
public struct EventReporter: Sendable {
    private let events: EventQueue
    private let catalog: ProjectCatalog

    /// The number of attempts before the request fails with 503.
    private static let attempts = 5

    public init(_ events: EventQueue, _ catalog: ProjectCatalog) {
        self.events = events
        self.catalog = catalog
    }

    /// Stores events; see ``EventQueue/record(_:_:)``. After a failure some may be stored: a repeat does not count them
    /// again.
    public func record(_ events: [UserEvent], _ completion: @escaping EventQueue.Completion) {
        record(events, attempts: Self.attempts, completion)
    }

    private func record(_ events: [UserEvent], attempts: Int, _ completion: @escaping EventQueue.Completion) {
        self.events.record(events) { result in
            guard case .success(let outcomes) = result, outcomes.contains(.outdated) else { return completion(result) }
            guard attempts > 1 else { return completion(.failure(.staleDatafile)) }
            catalog.refresh { refreshed in
                if case .failure(let error) = refreshed { return completion(.failure(error)) }
                let projects = catalog.snapshot().projects
                let outdated = outcomes.indices.filter { outcomes[$0] == .outdated }
                record(outdated.map { events[$0].renewed(in: projects) }, attempts: attempts - 1) { result in
                    completion(
                        result.map { renewed in
                            var outcomes = outcomes
                            for (index, outcome) in zip(outdated, renewed) { outcomes[index] = outcome }
                            return outcomes
                        })
                }
            }
        }
    }
}

extension UserEvent {
    /// Returns the event with what the present definitions say of it.
    fileprivate func renewed(in projects: [String: Project]) -> UserEvent {
        guard case .exposure(var exposure) = self else { return self }
        exposure.enrollsWith = projects[exposure.sdkKey]?.enrollingVersion(
            experimentID: exposure.experimentID, variationID: exposure.variationID)
        return .exposure(exposure)
    }
}
