import Bucketing
public import Storage

/// Records the events that clients report.
///
/// An exposure that names a variation also enrolls the user: it stores the variation as the assignment if the user has
/// none, provided that the newest definitions have the variation. If this process does not have the newest definitions,
/// the store returns the exposure as outdated. The reporter then loads them and submits the exposure again.
public struct EventReporter: Sendable {
    private let events: EventQueue
    private let catalog: ProjectCatalog
    private let uses: UseRecorder

    /// The number of attempts before the request fails with 503.
    private static let attempts = 5

    public init(_ events: EventQueue, _ catalog: ProjectCatalog, uses: UseRecorder) {
        self.events = events
        self.catalog = catalog
        self.uses = uses
    }

    /// Stores events; see ``EventQueue/record(_:)``. After a failure some may be stored: a repeat does not count them
    /// again.
    public func record(_ events: [UserEvent]) async throws(StorageError) -> [EventOutcome] {
        var events = events
        var outcomes = try await self.events.record(events)
        var outdated = outcomes.indices.filter { outcomes[$0] == .outdated }
        for _ in 1..<Self.attempts where !outdated.isEmpty {
            try await catalog.refresh()
            let projects = catalog.snapshot().projects
            for index in outdated { events[index] = events[index].renewed(in: projects) }
            let renewed = outdated.map { events[$0] }
            for (index, outcome) in zip(outdated, try await self.events.record(renewed)) {
                outcomes[index] = outcome
            }
            outdated.removeAll { outcomes[$0] != .outdated }
        }
        guard outdated.isEmpty else { throw .staleDatafile }
        for case .exposure(let exposure) in events where !exposure.variationID.string.isEmpty { uses.note(exposure) }
        return outcomes
    }
}

extension UserEvent {
    /// Returns the event as the current definitions would enroll its user.
    fileprivate func renewed(in projects: [String: Project]) -> UserEvent {
        guard case .exposure(let exposure) = self else { return self }
        return .exposure(exposure.enrolling(exposure.enrollsWith != nil, in: projects))
    }
}

extension Exposure {
    /// Returns the exposure with the version of the current definitions by which it enrolls its user.
    ///
    /// - Parameter enrolls: whether the exposure enrolls a user without an assignment, if the definitions have the
    ///   variation.
    public func enrolling(_ enrolls: Bool, in projects: [String: Project]) -> Exposure {
        var exposure = self
        exposure.enrollsWith = nil
        if enrolls, let project = projects[sdkKey] {
            exposure.enrollsWith = project.enrollingVersion(
                experimentID: experimentID, variationID: variationID, isImported: isImported)
        }
        return exposure
    }
}
