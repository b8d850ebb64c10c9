public import Foundation

/// An event that the client queues on disk until the server has stored or refused it.
public enum HoldfastEvent: Sendable {
    case attributes(AttributeEvent)
    /// Assignments of a user.
    ///
    /// - Parameter replacing: whether they replace stored assignments of the same experiments.
    case save(UserProfile, replacing: Bool)
    case exposure(ExposureEvent)
    case goal(GoalEvent)
    case login(LoginEvent)
    case evaluationCounts(EvaluationCountsEvent)
}

/// A change of a user's attributes.
public struct AttributeEvent: Sendable, Codable {
    public var userID: String
    /// Attributes to set.
    public var attributes: [String: UserAttributeValue]
    /// Names of attributes to delete; disjoint from `attributes`.
    public var removed: [String]

    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case attributes
        case removed = "remove"
    }
}

extension AttributeEvent {
    /// Names of all attributes that the event sets or deletes.
    var names: [String] { attributes.keys.sorted() + removed }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        userID = try container.decode(String.self, forKey: .userID)
        attributes = try container.decodeIfPresent([String: UserAttributeValue].self, forKey: .attributes) ?? [:]
        removed = try container.decodeIfPresent([String].self, forKey: .removed) ?? []
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(userID, forKey: .userID)
        if !attributes.isEmpty { try container.encode(attributes, forKey: .attributes) }
        if !removed.isEmpty { try container.encode(removed, forKey: .removed) }
    }
}

/// A user saw a variation.
public struct ExposureEvent: Sendable, Codable {
    public var userID: String
    /// The key or id of the experiment.
    public var experiment: String
    /// The id of the variation. An event with neither an id nor a key is about the variation that the server has stored
    /// for the user.
    public var variationID: String?
    /// The key of the variation.
    public var variationKey: String?
    /// When the user saw the variation, in UTC (RFC 3339).
    public var timestamp: String
    /// The key of the project; `nil` if the client's configuration has none.
    public var sdkKey: String?

    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case experiment
        case variationID = "variation_id"
        case variationKey = "variation_key"
        case timestamp
        case sdkKey = "sdk_key"
    }
}

/// A user reached a goal.
public struct GoalEvent: Sendable, Codable {
    /// Idempotency key: the server stores an id once.
    public var id: UUID
    public var userID: String
    /// The name of the goal on the server.
    public var goalID: String
    /// The value of the conversion, such as a price; `nil` if it has none.
    public var value: Double?
    /// When the user reached the goal, in UTC (RFC 3339).
    public var timestamp: String
    /// Further data that the server stores with the event.
    public var tags: [String: HoldfastValue]?
    /// The key of the project; `nil` if the client's configuration has none.
    public var sdkKey: String?

    private enum CodingKeys: String, CodingKey {
        case id
        case userID = "user_id"
        case goalID = "goal"
        case value, timestamp, tags
        case sdkKey = "sdk_key"
    }
}

/// An anonymous user logged in. The server merges the records of the anonymous user into the account, once.
public struct LoginEvent: Sendable, Codable {
    /// The account.
    public var userID: String
    /// The id of the anonymous user.
    public var anonymousID: String

    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case anonymousID = "anonymous_id"
    }
}

/// How often flags were evaluated since the last event of this kind.
public struct EvaluationCountsEvent: Sendable, Codable {
    /// Idempotency key.
    public var id: UUID
    public var sdkKey: String?
    public var counts: [EvaluationCount]

    private enum CodingKeys: String, CodingKey {
        case id, counts
        case sdkKey = "sdk_key"
    }
}

extension HoldfastEvent {
    /// The user of the event. The user of a login is the account. `nil` for counts, which have no user.
    var userID: String? {
        switch self {
        case .attributes(let event): event.userID
        case .save(let profile, _): profile.userID
        case .exposure(let event): event.userID
        case .goal(let event): event.userID
        case .login(let event): event.userID
        case .evaluationCounts: nil
        }
    }

    var kind: EventKind {
        switch self {
        case .attributes: .attributes
        case .save(_, let replacing): replacing ? .replacingSave : .save
        case .exposure: .exposure
        case .goal: .goal
        case .login: .login
        case .evaluationCounts: .evaluationCounts
        }
    }

    /// Returns the JSON that is queued and sent.
    func encoded() throws(HoldfastError) -> [UInt8] {
        switch self {
        case .attributes(let value): try HoldfastServer.encode(value)
        case .save(let value, _): try HoldfastServer.encode(value)
        case .exposure(let value): try HoldfastServer.encode(value)
        case .goal(let value): try HoldfastServer.encode(value)
        case .login(let value): try HoldfastServer.encode(value)
        case .evaluationCounts(let value): try HoldfastServer.encode(value)
        }
    }

    /// Decodes a queued event.
    ///
    /// - Returns: `nil` for the payload of another release that cannot be decoded.
    init?(_ kind: EventKind, _ payload: [UInt8]) {
        func decode<Value: Decodable>(_ make: (Value) -> HoldfastEvent) -> HoldfastEvent? {
            (try? JSONDecoder().decode(Value.self, from: Data(payload))).map(make)
        }
        let event: HoldfastEvent? =
            switch kind {
            case .attributes: decode(HoldfastEvent.attributes)
            case .save: decode { .save($0, replacing: false) }
            case .replacingSave: decode { .save($0, replacing: true) }
            case .exposure: decode(HoldfastEvent.exposure)
            case .goal: decode(HoldfastEvent.goal)
            case .login: decode(HoldfastEvent.login)
            case .evaluationCounts: decode(HoldfastEvent.evaluationCounts)
            }
        guard let event else { return nil }
        self = event
    }
}

/// The kind of an event. Kinds are delivered in parallel. The raw values are in the file of the queue.
public enum EventKind: UInt8, Sendable, CaseIterable, Codable {
    case attributes = 1
    /// A save that keeps stored assignments.
    case save = 2
    /// A save that replaces stored assignments of the same experiments.
    case replacingSave = 3
    case exposure = 4
    case goal = 5
    /// A login is sent after the events that were queued before it; see ``precedesLogins``.
    case login = 6
    case evaluationCounts = 7

    /// Whether a login waits for older events of this kind.
    var precedesLogins: Bool { self != .login && self != .evaluationCounts }

    /// Whether the events of one user must be delivered in order. Exposures and goals carry a timestamp instead.
    var keepsOrder: Bool {
        switch self {
        case .attributes, .save, .replacingSave: true
        case .exposure, .goal, .login, .evaluationCounts: false
        }
    }
}
