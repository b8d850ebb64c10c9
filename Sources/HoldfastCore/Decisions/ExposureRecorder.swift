public import Bucketing
import JSON
public import Storage
internal import Synchronization

/// Records the exposures that decisions of this server bring, without making the decision wait. Of a user who stays in
/// one variation only the first is written.
public struct ExposureRecorder: Sendable {
    public let events: EventQueue
    public let known: KnownExposures

    public init(events: EventQueue, known: KnownExposures) {
        self.events = events
        self.known = known
    }

    public func record(_ impressions: [Impression], of user: User, in project: Project) {
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

/// The exposures that this process has sent to the store lately, so that a user who meets an experiment again and
/// again causes no work there. It may forget, and forgets all after a while; it never takes an exposure for known that
/// was not sent, but for two of one 64-bit hash.
public final class KnownExposures: Sendable {
    private struct State {
        var recent: Set<Int> = []
        var former: Set<Int> = []
        /// When `recent` becomes `former`.
        var turn: Timestamp = 0
    }

    private let state = Mutex(State())
    /// Exposures of one generation, of which two are kept.
    private let capacity: Int

    /// Milliseconds until an exposure is sent again for which the store has no more use: so long may it take until
    /// the exposures of a user are noticed who was erased by another process.
    private static let generation: Timestamp = 60_000

    public init(capacity: Int = 131_072) {
        self.capacity = capacity
    }

    /// Takes note of an exposure.
    ///
    /// - Returns: whether it was known.
    public func insert(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isForced: Bool, at now: Timestamp
    ) -> Bool {
        var hasher = Hasher()
        hasher.combine(userID)
        hasher.combine(UInt8.max)
        hasher.combine(experimentID)
        hasher.combine(UInt8.max)
        hasher.combine(variationID)
        hasher.combine(isForced)
        let hash = hasher.finalize()
        return state.withLock { state in
            // A clock that was set back would keep a generation for as long.
            if now >= state.turn || now < state.turn - Self.generation || state.recent.count >= capacity {
                swap(&state.recent, &state.former)
                state.recent.removeAll(keepingCapacity: true)
                state.turn = now + Self.generation
            }
            return state.former.contains(hash) || !state.recent.insert(hash).inserted
        }
    }

    /// Forgets everything: something that was sent has not been stored, or has been erased since.
    public func removeAll() {
        state.withLock { state in
            state.recent.removeAll(keepingCapacity: true)
            state.former.removeAll(keepingCapacity: true)
        }
    }
}
