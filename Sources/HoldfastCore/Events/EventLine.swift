import Bucketing
import Chronology
public import JSON
public import Storage

/// Writes stored events as JSON, for exports and the feed.
///
/// In an export each event has a `cursor`. A client that requests the events after the last cursor gets the next ones.
/// The member `detail` has the recorded details of the event, such as its tags, which have no member of their own.
public enum EventLine {
    /// Writes an exposure.
    public static func append(_ stored: StoredExposure, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("cursor", stored.number)
        writer.member("user_id", stored.exposure.userID.string)
        appendMembers(of: stored, to: &writer)
        writer.endObject()
    }

    /// Writes a goal event.
    public static func append(_ stored: StoredGoalEvent, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("cursor", stored.number)
        if let id = stored.event.senderID { writer.member("id", id.string) }
        writer.member("user_id", stored.event.userID.string)
        appendMembers(of: stored.event, to: &writer)
        writer.endObject()
    }

    /// Writes the members of an exposure, except those that identify the event and the user.
    static func appendMembers(of stored: StoredExposure, to writer: inout JSONWriter) {
        let exposure = stored.exposure
        writer.member("experiment_id", exposure.experimentID.string)
        writer.member("experiment_key", exposure.experimentKey.string)
        writer.member("variation_id", exposure.variationID.string)
        writer.member("timestamp", exposure.happenedAt.rfc3339)
        writer.member("multiple_variations", stored.hasMultipleVariations)
        writer.member("forced", exposure.isChosen)
        appendDetail(exposure.sdkKey, exposure.payload, &writer)
    }

    /// Writes the members of a goal event, except those that identify the event and the user.
    static func appendMembers(of event: GoalEvent, to writer: inout JSONWriter) {
        writer.member("goal", event.goal.string)
        writer.key("value")
        writer.number(event.value)
        writer.member("timestamp", event.happenedAt.rfc3339)
        writer.member("received_at", event.receivedAt.rfc3339)
        appendDetail(event.sdkKey, event.payload, &writer)
    }

    /// Writes the members that exposures and goal events share.
    private static func appendDetail(_ sdkKey: String, _ payload: [UInt8], _ writer: inout JSONWriter) {
        if !sdkKey.isEmpty { writer.member("sdk_key", sdkKey) }
        writer.key("detail")
        writer.raw(payload)
    }
}
