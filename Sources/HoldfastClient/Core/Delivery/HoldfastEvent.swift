public import Foundation

/// What a client tells the server, and keeps on disk until the server has it.
public enum HoldfastEvent: Sendable {
    case attributes(AttributeUpdate)
    /// - Parameter replacing: whether it replaces what the server has of the same experiments.
    case save(UserProfile, replacing: Bool)
    case exposure(Exposure)
    case goal(GoalEvent)
}

/// Changes of a user's attributes.
public struct AttributeUpdate: Sendable, Codable {
    public var userID: String
    /// What is set.
    public var attributes: [String: AttributeValue]
    /// The names of those that are taken away; none of them is also set.
    public var removed: [String]

    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case attributes
        case removed = "remove"
    }
}

extension AttributeUpdate {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        userID = try container.decode(String.self, forKey: .userID)
        attributes = try container.decodeIfPresent([String: AttributeValue].self, forKey: .attributes) ?? [:]
        removed = try container.decodeIfPresent([String].self, forKey: .removed) ?? []
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(userID, forKey: .userID)
        if !attributes.isEmpty { try container.encode(attributes, forKey: .attributes) }
        if !removed.isEmpty { try container.encode(removed, forKey: .removed) }
    }
}

/// That a user really met a variation.
public struct Exposure: Sendable, Codable {
    public var userID: String
    /// The key or id of the experiment.
    public var experiment: String
    /// `nil`: the one that the server has stored for the user.
    public var variationID: String?
    public var timestamp: String
    public var sdkKey: String?

    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case experiment
        case variationID = "variation_id"
        case timestamp
        case sdkKey = "sdk_key"
    }
}

/// That a user reached a goal.
public struct GoalEvent: Sendable, Codable {
    /// Makes a repeat harmless.
    public var id: UUID
    public var userID: String
    public var goal: String
    public var value: Double?
    public var timestamp: String
    public var tags: [String: JSONValue]?
    public var sdkKey: String?

    private enum CodingKeys: String, CodingKey {
        case id
        case userID = "user_id"
        case goal, value, timestamp, tags
        case sdkKey = "sdk_key"
    }
}

extension HoldfastEvent {
    var kind: EventKind {
        switch self {
        case .attributes: .attributes
        case .save(_, let replacing): replacing ? .replacingSave : .save
        case .exposure: .exposure
        case .goal: .goal
        }
    }

    func encoded() throws(HoldfastError) -> [UInt8] {
        switch self {
        case .attributes(let value): try HoldfastServer.encode(value)
        case .save(let value, _): try HoldfastServer.encode(value)
        case .exposure(let value): try HoldfastServer.encode(value)
        case .goal(let value): try HoldfastServer.encode(value)
        }
    }

    /// - Returns: `nil` for what another version has written and this one cannot read.
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
            }
        guard let event else { return nil }
        self = event
    }
}
