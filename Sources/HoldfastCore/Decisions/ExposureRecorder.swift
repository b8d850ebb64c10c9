public import Bucketing
import JSON
public import Storage
internal import Synchronization

/// Records the exposures that this server's decisions cause. Decisions do not wait for it. For a user who stays in one
/// variation, only the first exposure is written.
public struct ExposureRecorder: Sendable {
    public let events: EventQueue
    public let known: KnownExposures

    public init(events: EventQueue, known: KnownExposures) {
        self.events = events
        self.known = known
    }

    /// Queues an exposure for each impression of an experiment, unless it is known already.
    public func record(_ impressions: [Impression], of user: User, in project: Project) {
        guard !impressions.isEmpty else { return }
        let now = systemWallClock()
        var exposures: [Exposure] = []
        // Encoded once at most: a request may have a megabyte of them, and a hundred impressions.
        lazy var attributes = user.attributes.isEmpty ? nil : EventDetail.encode(user.attributes)
        for impression in impressions {
            // Decisions without an experiment: a delivery to everyone else, or a flag without a
            // variation.
            guard !impression.experimentID.string.isEmpty, !impression.variationID.string.isEmpty,
                !known.insert(
                    user.id, impression.experimentID, impression.variationID, isForced: impression.source.isChosen,
                    at: now)
            else { continue }
            exposures.append(Self.exposure(impression, of: user.id, attributes, project, now))
        }
        events.add(exposures) { [known] in known.removeAll() }
    }

    /// - Parameter attributes: of the request, encoded; `nil` if there are none.
    private static func exposure(
        _ impression: Impression, of userID: Identifier, _ attributes: [UInt8]?, _ project: Project, _ now: Timestamp
    ) -> Exposure {
        Exposure(
            userID: userID, experimentID: impression.experimentID, experimentKey: impression.ruleKey,
            variationID: impression.variationID, happenedAt: now, isForced: impression.source.isChosen,
            sdkKey: project.sdkKey, payload: payload(impression, attributes),
            active: project.allocation(experimentID: impression.experimentID))
    }

    private static func payload(_ impression: Impression, _ attributes: [UInt8]?) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("variation_key", impression.variationKey.string)
        writer.member("flag_key", impression.flagKey.string)
        writer.member("rule_type", impression.ruleType)
        writer.member("source", impression.source.rawValue)
        if let attributes {
            writer.key("attributes")
            writer.raw(attributes)
        }
        writer.endObject()
        return writer.finish()
    }
}

extension DecisionSource {
    /// Whether somebody chose the variation for the user. Results leave such users out, because they are not a random
    /// sample.
    var isChosen: Bool {
        switch self {
        case .forced, .override, .whitelist: true
        case .stored, .bucketed, .holdout, .none: false
        }
    }
}

/// A cache of the exposures that this process recently sent to the store, so that repeated exposures cost it no work.
/// It may forget an exposure, and forgets each one after a while. It never reports an unsent exposure as known, except
/// in a collision of 64-bit hashes.
public final class KnownExposures: Sendable {
    private struct State {
        var recent: Set<Int> = []
        var former: Set<Int> = []
        /// When `recent` becomes `former`.
        var rotation: Timestamp = 0
    }

    private let state = Mutex(State())
    /// The maximum number of exposures in one generation; two generations are kept.
    private let capacity: Int

    /// The length of a generation in milliseconds. An exposure is remembered for one to two generations. During that
    /// time, exposures of a user whom another process has erased are not recorded again.
    private static let generation: Timestamp = 60_000

    public init(capacity: Int = 131_072) {
        self.capacity = capacity
    }

    /// Remembers an exposure.
    ///
    /// - Returns: whether it was already known.
    public func insert(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isForced: Bool, at now: Timestamp
    ) -> Bool {
        let hash = Self.hash(userID, experimentID, variationID, isForced: isForced)
        return state.withLock { state in
            // The second condition is true if the clock was set back; otherwise the generation would last too long.
            if now >= state.rotation || now < state.rotation - Self.generation || state.recent.count >= capacity {
                swap(&state.recent, &state.former)
                state.recent.removeAll(keepingCapacity: true)
                state.rotation = now + Self.generation
            }
            return state.former.contains(hash) || !state.recent.insert(hash).inserted
        }
    }

    private static func hash(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isForced: Bool
    ) -> Int {
        var hasher = Hasher()
        hasher.combine(userID)
        hasher.combine(UInt8.max)
        hasher.combine(experimentID)
        hasher.combine(UInt8.max)
        hasher.combine(variationID)
        hasher.combine(isForced)
        return hasher.finalize()
    }

    /// Forgets exposures that were moved to another user.
    public func remove(_ exposures: [Exposure]) {
        guard !exposures.isEmpty else { return }
        let hashes = exposures.flatMap { exposure in
            [false, true].map {
                Self.hash(exposure.userID, exposure.experimentID, exposure.variationID, isForced: $0)
            }
        }
        state.withLock { state in
            for hash in hashes {
                state.recent.remove(hash)
                state.former.remove(hash)
            }
        }
    }

    /// Forgets everything; called when exposures were not stored, or were erased.
    public func removeAll() {
        state.withLock { state in
            state.recent.removeAll(keepingCapacity: true)
            state.former.removeAll(keepingCapacity: true)
        }
    }
}
