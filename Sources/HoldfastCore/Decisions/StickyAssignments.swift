public import Bucketing
public import Storage

/// What is stored about a user when a decision is made: the variations forced for a test, the profile, the attributes.
public struct StickyAssignments: StoredAssignments {
    public let profile: ProfileRecord?
    public let forcedVariations: [Identifier: Identifier]?
    public let attributes: (any AttributeSource)?
    /// `nil` for a profile that is walked in no time.
    private let index: AssignmentIndex?

    init(_ profile: ProfileRecord?, _ userID: Identifier, _ project: Project, attributes: StoredAttributes? = nil) {
        self.profile = profile
        self.attributes = attributes
        index = profile.flatMap { $0.count > AssignmentIndex.walkable ? AssignmentIndex($0) : nil }
        forcedVariations = project.forcedVariations.isEmpty ? nil : project.forcedVariations[userID]
    }

    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        guard let profile else { return nil }
        guard let entry = index == nil ? profile.entry(for: experimentID) : index?.entry(for: experimentID) else { return nil }
        return StoredAssignment(
            variationID: profile.variationID(of: entry), isOverride: entry.source == .override)
    }
}

/// The assignments of a big profile by experiment, from the time that many of them are asked for.
private final class AssignmentIndex: @unchecked Sendable {
    // Safe: one decision after the other asks, on the event loop of its request.
    private let profile: ProfileRecord
    private var lookups = 0
    private var entries: [Identifier: ProfileRecord.Entry] = [:]

    static let walkable = 32
    /// Lookups that together take as long as to index the profile.
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
