import Bucketing
import Chronology
import JSON
public import Storage

/// Records the exposures that this server's decisions cause. Decisions do not wait until the exposures are stored.
///
/// Results need only the first exposure of a user to a variation, so repeated exposures are not sent to the store
/// (``KnownExposures``).
public struct ExposureRecorder: Sendable {
    public let events: EventQueue
    public let known: KnownExposures
    private let uses: UseRecorder
    private let clock: StoreClock

    public init(events: EventQueue, known: KnownExposures, uses: UseRecorder, clock: StoreClock) {
        self.events = events
        self.known = known
        self.uses = uses
        self.clock = clock
    }

    /// Queues an exposure for each impression of an experiment, unless the exposure is known already.
    ///
    /// - Parameters:
    ///   - enrolled: the experiments in which the decisions have just enrolled the user. Their exposures are always
    ///     recorded. If such an exposure is known although the user had no assignment, another process has erased or
    ///     merged the user, and the exposure is no longer stored.
    ///   - enrolling: the experiments whose assignments could not be stored. Their exposures enroll the user instead.
    func record(
        _ impressions: [Impression], of user: User, enrolledIn enrolled: some Sequence<Identifier>,
        enrolling: [Identifier] = [], in project: Project
    ) {
        guard !impressions.isEmpty else { return }
        let now = clock.now()
        var exposures: [Exposure] = []
        var keys: [Int] = []
        // Encoded at most once: a request may have a megabyte of attributes and a hundred impressions.
        lazy var attributes = user.attributes.isEmpty ? nil : EventDetail.encode(user.attributes)
        for impression in impressions {
            // The impression of a flag without a variation, or of a delivery outside of experiments, is no exposure.
            guard !impression.experimentID.string.isEmpty, !impression.variationID.string.isEmpty else { continue }
            let (isKnown, key) = known.insert(
                user.id, impression.experimentID, impression.variationID, isChosen: impression.source.isChosen, at: now)
            guard !isKnown || enrolled.contains(impression.experimentID) else { continue }
            keys.append(key)
            var exposure = Self.exposure(impression, of: user.id, attributes, project, now)
            if enrolling.contains(impression.experimentID) { exposure.enrollsWith = project.catalogVersion }
            exposures.append(exposure)
        }
        for exposure in exposures { uses.note(exposure) }
        // An exposure that was not stored must not count as known.
        events.add(exposures) { [known, keys] in known.remove(keys) }
    }

    /// - Parameter attributes: the encoded attributes of the request; `nil` if it has none.
    private static func exposure(
        _ impression: Impression, of userID: Identifier, _ attributes: [UInt8]?, _ project: Project, _ now: Instant
    ) -> Exposure {
        Exposure(
            userID: userID, experimentID: impression.experimentID, experimentKey: impression.ruleKey,
            variationID: impression.variationID, happenedAt: now, isChosen: impression.source.isChosen,
            sdkKey: project.sdkKey, payload: payload(impression, attributes),
            active: project.allocation(experimentID: impression.experimentID))
    }

    /// Returns the details to store with an exposure, as a JSON object.
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
    /// Whether the variation was chosen for the user instead of by chance. Results exclude such users, because they are
    /// not a random sample.
    var isChosen: Bool {
        switch self {
        case .requested, .override, .whitelist: true
        case .stored, .bucketed, .concluded, .holdout, .none: false
        }
    }
}
