import Bucketing
import Storage

/// What is known of a user when a decision is made: the variations forced on the user, before those of the profile.
struct StickyAssignments: StoredAssignments {
    let profile: ProfileRecord?
    /// By experiment id.
    let forced: [Identifier: Identifier]?
    let attributes: StoredAttributes?

    init(_ profile: ProfileRecord?, _ userID: Identifier, _ project: Project, attributes: StoredAttributes? = nil) {
        self.profile = profile
        self.attributes = attributes
        forced = project.forcedVariations.isEmpty ? nil : project.forcedVariations[userID]
    }

    func assignment(experimentID: Identifier) -> StoredAssignment? {
        if let variationID = forced?[experimentID] {
            return StoredAssignment(variationID: variationID, isOverride: true)
        }
        guard let profile, let entry = profile.entry(for: experimentID) else { return nil }
        return StoredAssignment(
            variationID: profile.variationID(of: entry), isOverride: entry.source == .override)
    }
}
