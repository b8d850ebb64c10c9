public import Bucketing

extension UserChange<AttributeChangeResult> {
    /// Changes a user's attributes.
    public static func attributes(_ change: AttributeChange) -> Self {
        Self(of: change.userID, bytes: change.waitingBytes, concernsAttributesOnly: true) {
            records, _, _ throws(StorageError) in
            try AttributeRules.apply(change, to: &records[0])
        }
    }
}

extension UserChange<ProfileChangeResult> {
    /// Changes a user's profile, and the other records that depend on it.
    package static func profile(_ change: ProfileChange, by author: Author?) -> Self {
        Self(of: change.userID, bytes: change.waitingBytes) { records, tallies, context throws(StorageError) in
            try StoreRules(profiles: context.profiles).apply(
                change, by: author, to: &records[0], at: context.now, &tallies)
        }
    }
}

extension UserChange<ProfileMergeResult> {
    /// Merges an anonymous user into an account and records the merge in the audit log.
    public static func merge(_ merge: ProfileMerge, by author: Author) -> Self {
        Self(of: merge.userID, merge.anonymousID) { records, tallies, context throws(StorageError) in
            var account = records[0]
            var anonymous = records[1]
            defer { records = [account, anonymous] }
            return try MergeRules(profiles: context.profiles).apply(
                merge, by: author, to: &account, &anonymous, at: context.now, &tallies)
        }
    }
}

extension UserChange<Identifier?> {
    /// Forces a variation on a user for a test, or with `nil` removes the forced variation, and records the change in
    /// the audit log. The result is the key of the variation that was forced before; `nil` if there was none.
    public static func forceVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author
    ) -> Self {
        Self(of: userID) { records, tallies, _ in
            let forcing = StoreRules.force(
                variationKey, experimentKey: experimentKey, sdkKey: sdkKey, by: author, in: &records[0], &tallies)
            return forcing.map(\.formerKey)
        }
    }
}

extension UserChange<Void> {
    /// Stores a user's totals of new series of an experiment, and deletes the user's totals of dropped series; see
    /// ``SeriesFiller``.
    package static func settleSeries(of userID: Identifier, in experimentID: Identifier) -> Self {
        Self(of: userID) { records, tallies, _ in
            SeriesRules.settle(experimentID, in: &records[0], &tallies) ? () : nil
        }
    }
}

extension UserChange<EventOutcome> {
    /// Records an exposure or a goal event.
    package static func event(_ received: ReceivedEvent) -> Self {
        Self(of: received.event.userID, bytes: received.waitingBytes) { records, tallies, context in
            EventRules.apply(received.event, to: &records[0], &tallies, context.profiles, at: context.now)
        }
    }
}
