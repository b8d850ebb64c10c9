import Bucketing
import Chronology
import JSON
import Storage

/// Encodes events and last uses of flags for the outbox, as the upstream's `/edge/v1/events` expects them.
///
/// The content of an entry is the members of a JSON object, without its braces. The ``OutboxSender`` adds the number
/// and the user's id when it sends the entry: a merge may change the user's id while the entry waits.
enum OutboxEntry {
    /// An entry to append; the user is `nil` for a last use, which belongs to no user.
    typealias New = (userID: Identifier?, content: [UInt8])

    /// Encodes an event.
    ///
    /// - Parameter acceptedAt: when the edge accepted the event, by the upstream's clock, or a little earlier; see
    ///   ``UpstreamIdentity/earliest(of:)``.
    static func encode(_ event: UserEvent, acceptedAt: Instant) -> [UInt8] {
        var writer = JSONWriter()
        writer.member("accepted_at", acceptedAt.milliseconds)
        switch event {
        case .exposure(let exposure):
            writer.member("kind", "exposure")
            writer.member("experiment_id", exposure.experimentID.string)
            writer.member("experiment_key", exposure.experimentKey.string)
            // Without a variation the upstream uses the user's assignment.
            if !exposure.variationID.string.isEmpty { writer.member("variation_id", exposure.variationID.string) }
            writer.member("happened_at", exposure.happenedAt.milliseconds)
            writer.member("is_chosen", exposure.isChosen)
            writer.member("sdk_key", exposure.sdkKey)
            writer.member("enrolls", exposure.enrollsWith != nil)
            writer.member("payload", String(decoding: exposure.payload, as: UTF8.self))
        case .goal(let goal):
            writer.member("kind", "goal")
            writer.member("goal", goal.goal.string)
            writer.key("value")
            writer.shortest(goal.value)
            writer.member("happened_at", goal.happenedAt.milliseconds)
            writer.member("received_at", goal.receivedAt.milliseconds)
            // The id lets the upstream recognize an event that it receives twice.
            writer.member("id", goal.senderID?.string ?? randomID())
            writer.member("sdk_key", goal.sdkKey)
            writer.member("payload", String(decoding: goal.payload, as: UTF8.self))
        }
        return writer.finish()
    }

    /// Returns an id for an event to which its sender gave none: 128 random bits, which make a second use unlikely.
    private static func randomID() -> String {
        let high = UInt64.random(in: .min ... .max)
        let low = UInt64.random(in: .min ... .max)
        return "edge-\(String(high, radix: 36))\(String(low, radix: 36))"
    }

    /// Encodes a last use of a flag.
    static func encode(_ use: LastUse) -> [UInt8] {
        var writer = JSONWriter()
        writer.member("sdk_key", use.subject.sdkKey)
        writer.member("kind", use.subject.kind.rawValue)
        writer.member("key", use.subject.key.string)
        writer.member("variation", use.subject.variation.string)
        writer.member("day", use.day)
        return writer.finish()
    }
}
