public import Bucketing
public import Storage

/// The stored data of a user from which decisions are made: the profile, the stored attributes and the forced
/// variations. A forced variation takes precedence over the profile.
public struct StickyAssignments: StoredAssignments {
    public let profile: ProfileRecord?
    /// The ids of forced variations, by experiment id.
    public let forcedVariations: [Identifier: Identifier]?
    public let attributes: (any AttributeSource)?
    /// The index of the profile; `nil` if the profile is small enough for a linear search.
    private let index: AssignmentIndex?
    /// The anonymous profile of the user, from before the login. Its assignment counts for an experiment in which the
    /// user has no assignment.
    private let anonymousIndex: AssignmentIndex?
    /// The experiments for which the profile has no room.
    private let refused: Set<Identifier>

    /// - Parameters:
    ///   - anonymous: the user's anonymous profile; `nil` if the request names none.
    ///   - refused: the experiments for which the profile has no room.
    init(
        _ profile: ProfileRecord?, anonymous: ProfileRecord? = nil, _ userID: Identifier, _ project: Project,
        attributes: StoredAttributes? = nil, refused: Set<Identifier> = []
    ) {
        self.profile = profile
        self.refused = refused
        self.attributes = attributes
        index = profile.flatMap { $0.count > AssignmentIndex.linearLimit ? AssignmentIndex($0) : nil }
        anonymousIndex = anonymous.map { AssignmentIndex($0) }
        forcedVariations = project.forcedVariations.isEmpty ? nil : project.forcedVariations[userID]
    }

    /// Creates the assignments of one of many users who are counted, without an index.
    ///
    /// - Parameter forced: the ids of forced variations, by experiment id.
    init(_ profile: ProfileRecord, forced: [Identifier: Identifier]?, attributes: StoredAttributes?) {
        self.profile = profile
        self.attributes = attributes
        index = nil
        anonymousIndex = nil
        refused = []
        forcedVariations = forced
    }

    /// Returns the profile's entry of an experiment.
    private func entry(for experimentID: Identifier) -> ProfileRecord.Entry? {
        index == nil ? profile?.entry(for: experimentID) : index?.entry(for: experimentID)
    }

    /// Returns the assignment of the profile, or else the assignment of the anonymous profile, if the user may take it
    /// over (``TakeoverRules``).
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        if let profile, let entry = entry(for: experimentID) {
            return StoredAssignment(
                variationID: profile.variationID(of: entry), isOverride: entry.source == .override)
        }
        guard let anonymousIndex, hasRoom(for: experimentID),
            let anonymousEntry = anonymousIndex.entry(for: experimentID),
            let takenOver = TakeoverRules.assignment(anonymousIndex.profile.assignment(of: anonymousEntry))
        else { return nil }
        return StoredAssignment(variationID: takenOver.variationID, isFromAnonymousProfile: true)
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

/// Finds assignments in a profile by experiment. The first lookups search the profile. Further lookups use an index,
/// because building the index takes as long as several searches.
///
/// The class is unchecked `Sendable` because the decisions of a request use it one after the other, on the request's
/// event loop.
private final class AssignmentIndex: @unchecked Sendable {
    let profile: ProfileRecord
    private var lookupCount = 0
    /// The entries by experiment id; empty before the index is built.
    private var entries: [Identifier: ProfileRecord.Entry] = [:]

    /// The maximum number of assignments of a profile that is searched without an index.
    static let linearLimit = 32
    /// The number of searches that take about as long as building the index.
    private static let searchLimit = 8

    init(_ profile: ProfileRecord) {
        self.profile = profile
    }

    func entry(for experimentID: Identifier) -> ProfileRecord.Entry? {
        lookupCount += 1
        guard lookupCount > Self.searchLimit else { return profile.entry(for: experimentID) }
        if entries.isEmpty {
            for entry in profile.entries { entries[profile.experimentID(of: entry)] = entry }
        }
        return entries[experimentID]
    }
}
