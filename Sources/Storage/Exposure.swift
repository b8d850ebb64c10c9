public import Bucketing

/// A user met an experiment: the variation had its effect, or could have had.
public struct Exposure: Sendable, Equatable {
    public var userID: Identifier
    public var experimentID: Identifier
    public var experimentKey: Identifier
    public var variationID: Identifier
    public var happenedAt: Timestamp
    /// Whether the variation was chosen for the user, by the caller, the whitelist or an admin, rather than by chance.
    public var isForced: Bool
    public var sdkKey: String
    /// A JSON object.
    public var payload: [UInt8]

    public init(
        userID: Identifier, experimentID: Identifier, experimentKey: Identifier, variationID: Identifier,
        happenedAt: Timestamp, isForced: Bool, sdkKey: String, payload: [UInt8] = Array("{}".utf8)
    ) {
        self.userID = userID
        self.experimentID = experimentID
        self.experimentKey = experimentKey
        self.variationID = variationID
        self.happenedAt = happenedAt
        self.isForced = isForced
        self.sdkKey = sdkKey
        self.payload = payload
    }
}

/// The first exposure of a user to an experiment, as it is stored.
public struct StoredExposure: Sendable {
    /// Greater than those of all exposures that were stored or changed before.
    public var number: Int64
    /// With the time and the variation of the first; forced if any was.
    public var exposure: Exposure
    /// Whether the user was exposed to more than one variation.
    public var isCrossed: Bool

    public init(number: Int64, exposure: Exposure, isCrossed: Bool) {
        self.number = number
        self.exposure = exposure
        self.isCrossed = isCrossed
    }

    /// Whether results count the user.
    public var isCounted: Bool { !isCrossed && !exposure.isForced }
}
