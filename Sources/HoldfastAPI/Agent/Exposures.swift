import Bucketing
import JSON
import Storage

/// Records the exposures that decisions of this server bring, without making the decision wait. Of a user who stays in
/// one variation only the first is written.
struct Exposures: Sendable {
    let events: EventQueue
    let known: KnownExposures

    func record(_ impressions: [Impression], of user: User, in project: Project) {
        guard !impressions.isEmpty else { return }
        let now = systemWallClock()
        var exposures: [Exposure] = []
        for impression in impressions {
            // A delivery without a rule, or a flag without a variation, is no experiment.
            guard !impression.experimentID.string.isEmpty, !impression.variationID.string.isEmpty,
                !known.insert(
                    user.id, impression.experimentID, impression.variationID, isForced: impression.origin.isChosen,
                    at: now)
            else { continue }
            exposures.append(Self.exposure(impression, user, project, now))
        }
        events.add(exposures) { [known] in known.removeAll() }
    }

    private static func exposure(
        _ impression: Impression, _ user: User, _ project: Project, _ now: Timestamp
    ) -> Exposure {
        Exposure(
            userID: user.id, experimentID: impression.experimentID, experimentKey: impression.ruleKey,
            variationID: impression.variationID, happenedAt: now, isForced: impression.origin.isChosen,
            sdkKey: project.sdkKey, payload: payload(impression, user.attributes))
    }

    private static func payload(_ impression: Impression, _ attributes: JSONObject) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("variation_key", impression.variationKey.string)
        writer.member("flag_key", impression.flagKey.string)
        writer.member("rule_type", impression.ruleType)
        writer.member("source", impression.origin.rawValue)
        if !attributes.isEmpty { writer.detail("attributes", attributes) }
        writer.endObject()
        return writer.finish()
    }
}

extension Origin {
    /// Whether somebody has chosen the variation for the user, so that a comparison with others means nothing.
    var isChosen: Bool {
        switch self {
        case .forced, .override, .whitelist: true
        case .stored, .bucketed, .holdout, .none: false
        }
    }
}
