import Bucketing
import JSON
import Storage

/// Events as lines of NDJSON. `cursor` is what a reader resumes after; `detail` is what else was recorded.
enum EventLine {
    static func append(_ stored: StoredExposure, to writer: inout JSONWriter) {
        let exposure = stored.exposure
        writer.beginObject()
        writer.member("cursor", stored.number)
        writer.member("user_id", exposure.userID.string)
        writer.member("experiment_id", exposure.experimentID.string)
        writer.member("experiment_key", exposure.experimentKey.string)
        writer.member("variation_id", exposure.variationID.string)
        writer.member("timestamp", exposure.happenedAt.rfc3339)
        writer.member("crossed", stored.isCrossed)
        writer.member("forced", exposure.isForced)
        end(exposure.sdkKey, exposure.payload, &writer)
    }

    static func append(_ stored: StoredGoalEvent, to writer: inout JSONWriter) {
        let event = stored.event
        writer.beginObject()
        writer.member("cursor", stored.number)
        if let id = event.senderID { writer.member("id", id.string) }
        writer.member("user_id", event.userID.string)
        writer.member("goal", event.goal.string)
        writer.key("value")
        writer.number(event.value)
        writer.member("timestamp", event.happenedAt.rfc3339)
        writer.member("received_at", event.receivedAt.rfc3339)
        end(event.sdkKey, event.payload, &writer)
    }

    private static func end(_ sdkKey: String, _ payload: [UInt8], _ writer: inout JSONWriter) {
        if !sdkKey.isEmpty { writer.member("sdk_key", sdkKey) }
        writer.key("detail")
        writer.raw(payload)
        writer.endObject()
        writer.endLine()
    }
}
