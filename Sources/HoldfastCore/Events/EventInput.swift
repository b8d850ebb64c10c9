public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// Why an event is refused, and whether the same event may be accepted later.
public struct EventRefusal: Error {
    public var error: CoreError
    public var isRetriable: Bool

    /// - Parameter isRetriable: whether the cause may go away without a change to the event.
    public init(_ error: CoreError, isRetriable: Bool = false) {
        self.error = error
        self.isRetriable = isRetriable
    }
}

/// One event as a client sends it: an object at a place in the body. Its functions parse the members that exposures and
/// goal events share.
public struct EventInput {
    public let object: JSONObject
    public let place: JSONPointer
    public let now: Instant
    /// The project, if the event names none.
    private let defaultSDKKey: String?
    /// The earliest time of an imported event; `nil` for a reported event. Imported events may be old, and must have a
    /// time; reported events have the current time by default.
    private let earliest: Instant?

    /// - Parameters:
    ///   - known: the members that this kind of event may have.
    ///   - sdkKey: the project of an event that names none.
    ///   - earliest: the earliest time of an imported event; `nil` for a reported event.
    /// - Throws: 400 if the value is not an object or has other members.
    public init(
        _ value: JSONValue, knowing known: [String], at place: JSONPointer, sdkKey: String? = nil,
        importedSince earliest: Instant? = nil, now: Instant
    ) throws(CoreError) {
        self.earliest = earliest
        object = try value.object("an event", knowing: known, at: place)
        self.place = place
        self.now = now
        defaultSDKKey = sdkKey
    }

    /// Returns the `user_id`.
    public func userID() throws(CoreError) -> Identifier {
        try ProfileInput.checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
    }

    /// Returns the `sdk_key`, or else the default project of the request.
    public func sdkKey() throws(CoreError) -> String? {
        try object.optionalText("sdk_key", in: place) ?? defaultSDKKey
    }

    /// Returns a member of 1 to `limit` bytes without NUL; `nil` if it is absent.
    public func name(_ member: String, limit: Int) throws(CoreError) -> Identifier? {
        guard let text = try object.optionalText(member, in: place) else { return nil }
        guard Self.isName(text, limit: limit) else {
            throw CoreError(
                .invalid, "`\(member)` must be 1 to \(limit) bytes long, without NUL; got \(text.utf8.count) bytes",
                at: place.appending(member))
        }
        return Identifier(text)
    }

    /// Whether a text has 1 to `limit` bytes without NUL.
    public static func isName(_ text: String, limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && !text.utf8.contains(0)
    }

    /// Whether a goal may have the name.
    public static func isGoal(_ text: String) -> Bool { NameRule.admitsGoal(text) }

    /// Returns the text of an error for a name that is not ``isGoal(_:)``: what is required, and what was found.
    public static func goalRule(_ text: String) -> String { NameRule.ofGoals(text) }

    /// Returns the `timestamp`, or the current time if it is absent or slightly ahead.
    ///
    /// - Throws: 400 if it is not an RFC 3339 time, 422 if it is further back or ahead than ``EventRules`` allow.
    public func happenedAt() throws(CoreError) -> Instant {
        let pointer = place.appending("timestamp")
        guard let time = try object.optionalTime("timestamp", in: place) else {
            guard earliest == nil else {
                throw CoreError(.unprocessable, "`timestamp` is required in an import", at: pointer)
            }
            return now
        }
        let text = object["timestamp"]?.string ?? ""
        if let earliest, time < earliest {
            throw CoreError(
                .unprocessable, "`timestamp` must not be before \(earliest.rfc3339); got '\(text)'", at: pointer)
        }
        guard earliest != nil || time >= now - EventRules.maximumAge else {
            throw CoreError(.unprocessable, "`timestamp` must be at most 7 days ago; got '\(text)'", at: pointer)
        }
        guard time <= now + EventRules.maximumLead else {
            throw CoreError(
                .unprocessable, "`timestamp` must be at most 5 minutes ahead of the server's clock; got '\(text)'",
                at: pointer)
        }
        return min(time, now)
    }

    /// Returns the `value`; the default is 0.
    public func value() throws(CoreError) -> Double {
        guard let value = object["value"], !value.isNull else { return 0 }
        return try EventAmount.number(value, "value", in: place)
    }

    /// Returns the `tags` as the detail that is stored with the event: `{"tags":{…}}`, or `{}` if there are none.
    public func tags() throws(CoreError) -> [UInt8] {
        guard let value = object["tags"], !value.isNull else { return Array("{}".utf8) }
        let pointer = place.appending("tags")
        guard value.object != nil else {
            throw CoreError(.invalid, "`tags` must be an object; got \(value.kind)", at: pointer)
        }
        let wrapped: JSONValue = ["tags": value]
        let payload = wrapped.encoded()
        guard payload.count <= EventDetail.limit else {
            throw CoreError(.unprocessable, "`tags` must be at most \(EventDetail.limit) bytes of JSON", at: pointer)
        }
        return payload
    }
}

extension GoalEvent {
    /// The members of a goal event.
    public static let members = ["id", "user_id", "goal", "value", "timestamp", "tags", "sdk_key"]

    /// Parses `{"id"?,"user_id","goal","value"?,"timestamp"?,"tags"?,"sdk_key"?}`.
    public init(_ body: EventInput) throws(CoreError) {
        let userID = try body.userID()
        let goal = Identifier(try body.object.text("goal", in: body.place))
        guard EventInput.isGoal(goal.string) else {
            throw CoreError(
                .invalid, "`goal` \(EventInput.goalRule(goal.string))", at: body.place.appending("goal"))
        }
        self.init(
            userID: userID, goal: goal, value: try body.value(), happenedAt: try body.happenedAt(),
            receivedAt: body.now, senderID: try body.name("id", limit: 128), sdkKey: try body.sdkKey() ?? "",
            payload: try body.tags())
    }
}

/// The details of an event that are kept for exports; results do not need them.
public enum EventDetail {
    /// The maximum size of one member, in bytes of JSON.
    static let limit = 8_192

    /// Encodes a member. Events that share it can share the encoded bytes. An object over the limit becomes `null`, so
    /// that the event is not lost.
    public static func encode(_ object: JSONObject) -> [UInt8] {
        let json = JSONValue.object(object).encoded()
        return json.count <= limit ? json : Array("null".utf8)
    }
}

extension JSONWriter {
    /// Writes a member of an event's detail; see ``EventDetail/encode(_:)``.
    public mutating func detail(_ name: StaticString, _ object: JSONObject) {
        key(name)
        raw(EventDetail.encode(object))
    }
}
