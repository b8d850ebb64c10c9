import Bucketing
import Storage

/// Records the decision events of users, without making the decision wait.
struct Exposures: Sendable {
    let events: EventQueue

    func record(_ impressions: [Impression], of user: User, in project: Project) {
        guard !impressions.isEmpty else { return }
        let now = systemWallClock()
        events.add(
            impressions.map { impression in
                EventRecord(
                    kind: .impression, sdkKey: project.sdkKey, userID: user.id, receivedAt: now,
                    payload: Self.payload(impression, user.attributes))
            })
    }

    private static func payload(_ impression: Impression, _ attributes: JSONObject) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("flag_key", impression.flagKey.string)
        writer.member("rule_key", impression.ruleKey.string)
        writer.member("rule_type", impression.ruleType)
        writer.member("experiment_id", impression.experimentID.string)
        writer.member("campaign_id", impression.campaignID.string)
        writer.member("variation_id", impression.variationID.string)
        writer.member("variation_key", impression.variationKey.string)
        writer.member("enabled", impression.isEnabled)
        if !attributes.isEmpty {
            writer.key("attributes")
            writer.value(.object(attributes))
        }
        writer.endObject()
        return writer.bytes
    }
}
