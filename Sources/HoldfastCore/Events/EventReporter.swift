import Bucketing
public import Storage

/// Records the events that clients report.
///
/// An exposure that names a variation also enrolls the user: the store saves the variation as the user's assignment, if
/// the user has none and the newest definitions have the variation. If this process does not have the newest
/// definitions, the outcome is ``Storage/EventOutcome/outdated``. The reporter then loads the definitions and submits
/// the exposure again.
public struct EventReporter: Sendable {
    private let events: EventQueue
    private let catalog: ProjectCatalog
    private let uses: UseRecorder

    /// The maximum number of attempts. If definitions change faster, the request fails with 503.
    private static let attempts = 5

    public init(_ events: EventQueue, _ catalog: ProjectCatalog, uses: UseRecorder) {
        self.events = events
        self.catalog = catalog
        self.uses = uses
    }

    /// Stores events; see ``EventQueue/record(_:)``. After a failure, some of the events may be stored. The client may
    /// send all of them again, because repeated events do not count twice.
    ///
    /// - Throws: ``StorageError/staleDatafile`` if exposures are outdated in every attempt, or the error of the queue.
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
        // An exposure without a variation uses none: an edge sends it so that its upstream looks up the assignment.
        for case .exposure(let exposure) in events where !exposure.variationID.string.isEmpty { uses.note(exposure) }
        return outcomes
    }
}

extension UserEvent {
    /// Returns the event for a further attempt, after newer definitions were loaded. An exposure that was to enroll its
    /// user enrolls the user by these definitions; other events stay.
    fileprivate func renewed(in projects: [String: Project]) -> UserEvent {
        guard case .exposure(let exposure) = self else { return self }
        let wasEnrolling = exposure.enrollsWith != nil
        return .exposure(exposure.enrolling(wasEnrolling, in: projects))
    }
}

extension Exposure {
    /// Returns the exposure with ``enrollsWith`` set to the version of the current definitions.
    ///
    /// - Parameter enrolls: whether the exposure is to enroll a user who has no assignment. The result enrolls nobody
    ///   if `enrolls` is `false`, or if the definitions lack the variation.
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
