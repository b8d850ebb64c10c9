public import Bucketing
public import Storage

/// A user's stored data as a decision sees it: the profile, the stored attributes and the forced variations, which take
/// precedence over the profile.
public struct StickyAssignments: StoredAssignments {
    public let profile: ProfileRecord?
    /// The ids of forced variations, by experiment id.
    public let forcedVariations: [Identifier: Identifier]?
    public let attributes: (any AttributeSource)?
    /// The index of the profile; `nil` if the profile is small enough for a linear search.
    private let index: AssignmentIndex?
    /// The anonymous profile of the user, from before the login. Its assignments count where the user has none.
    private let borrowed: AssignmentIndex?
    /// The experiments for which the profile has no room.
    private let refused: Set<Identifier>

    /// - Parameters:
    ///   - anonymous: the user's anonymous profile.
    ///   - refused: the experiments for which the profile has no room.
    init(
        _ profile: ProfileRecord?, anonymous: ProfileRecord? = nil, _ userID: Identifier, _ project: Project,
        attributes: StoredAttributes? = nil, refused: Set<Identifier> = []
    ) {
        self.profile = profile
        self.refused = refused
        self.attributes = attributes
        index = profile.flatMap { $0.count > AssignmentIndex.walkable ? AssignmentIndex($0) : nil }
        borrowed = anonymous.map { AssignmentIndex($0) }
        forcedVariations = project.forcedVariations.isEmpty ? nil : project.forcedVariations[userID]
    }

    /// Creates the assignments from stored records, to count users.
    ///
    /// - Parameter forced: the ids of forced variations, by experiment id.
    init(_ profile: ProfileRecord, forced: [Identifier: Identifier]?, attributes: StoredAttributes?) {
        self.profile = profile
        self.attributes = attributes
        index = nil
        borrowed = nil
        refused = []
        forcedVariations = forced
    }

    /// Returns the profile's entry of an experiment.
    private func entry(for experimentID: Identifier) -> ProfileRecord.Entry? {
        index == nil ? profile?.entry(for: experimentID) : index?.entry(for: experimentID)
    }

    /// Returns the assignment of the profile, or else that of the anonymous profile, if it may be taken over.
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        if let profile, let entry = entry(for: experimentID) {
            return StoredAssignment(
                variationID: profile.variationID(of: entry), isOverride: entry.source == .override)
        }
        guard let borrowed, hasRoom(for: experimentID), let entry = borrowed.entry(for: experimentID),
            let taken = TakeoverRules.assignment(borrowed.profile.assignment(of: entry))
        else { return nil }
        return StoredAssignment(variationID: taken.variationID, isFromAnonymousProfile: true)
    }
}

extension StickyAssignments {
    /// Returns the variation of the assignment that an override hides.
    public func variationID(beneathOverrideIn experimentID: Identifier) -> Identifier? {
        guard let profile, let entry = entry(for: experimentID), entry.source == .override else { return nil }
        return profile.assignment(of: entry).layer?.beneath?.variationID
    }

    /// Whether the profile has room for an assignment in an experiment.
    public func hasRoom(for experimentID: Identifier) -> Bool {
        refused.isEmpty || !refused.contains(experimentID)
    }
}

/// Looks up assignments in a profile. A large profile is indexed after several look-ups: before, building the index
/// would take longer than it saves.
///
/// It is unchecked `Sendable` because the decisions of a request use it one after the other, on the request's event
/// loop.
private final class AssignmentIndex: @unchecked Sendable {
    let profile: ProfileRecord
    private var lookups = 0
    private var entries: [Identifier: ProfileRecord.Entry] = [:]

    /// The maximum number of assignments of a profile that needs no index.
    static let walkable = 32
    /// The number of look-ups that take about as long as indexing the profile.
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
