public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// The refusal of an event.
public struct EventRefusal: Error {
    public var error: CoreError
    /// Whether the same event may be accepted later, for example when its experiment has been defined.
    public var isRetriable: Bool

    public init(_ error: CoreError, isRetriable: Bool = false) {
        self.error = error
        self.isRetriable = isRetriable
    }
}

/// One event as a client sends it: a JSON object. Its functions parse the members that exposures and goal events share.
///
/// An event is either reported when it happens, or imported later from another system. A reported event without a
/// `timestamp` happens now. An imported event must have a `timestamp`, which may be old.
public struct EventInput {
    public let object: JSONObject
    /// The location of the object in the body, for errors.
    public let place: JSONPointer
    /// The time at which the server received the event.
    public let now: Instant
    /// The SDK key of the request, for an event without an `sdk_key`.
    private let defaultSDKKey: String?
    /// The earliest allowed time of an imported event; `nil` for a reported event.
    private let earliest: Instant?

    /// The maximum length of the `id` of an event, in bytes.
    static let idLimit = 128
    /// The maximum length of the id or key of an experiment or variation, in bytes.
    static let referenceLimit = 255

    /// - Parameters:
    ///   - known: the members that this kind of event may have.
    ///   - sdkKey: the SDK key of the request, for an event without an `sdk_key`.
    ///   - earliest: the earliest allowed time of an imported event; `nil` for a reported event.
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
    ///
    /// - Throws: 400 if it is absent or not a valid user id.
    public func userID() throws(CoreError) -> Identifier {
        try ProfileInput.checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
    }

    /// Returns the `sdk_key` of the event, or else that of the request.
    ///
    /// - Throws: 400 if it is not a string.
    public func sdkKey() throws(CoreError) -> String? {
        try object.optionalText("sdk_key", in: place) ?? defaultSDKKey
    }

    /// Returns a member of 1 to `limit` bytes without NUL; `nil` if it is absent.
    ///
    /// - Throws: 400 if the member is not such a text.
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

    /// Whether a text is a valid name of a goal.
    public static func isGoal(_ text: String) -> Bool { NameRule.admitsGoal(text) }

    /// Returns the end of an error message about an invalid name of a goal: the rule, and the name that was found.
    public static func goalRule(_ text: String) -> String { NameRule.ofGoals(text) }

    /// Returns the `timestamp`, or the current time if it is absent. A sender's clock may be slightly ahead of the
    /// server's, so a time of the near future counts as the current time.
    ///
    /// - Throws: 400 if the `timestamp` is not an RFC 3339 time; 422 if it is older than ``EventRules/maximumAge`` or
    ///   further ahead than ``EventRules/maximumLead``, or if an imported event has none.
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
            let days = Int(EventRules.maximumAge.inDays)
            throw CoreError(.unprocessable, "`timestamp` must be at most \(days) days ago; got '\(text)'", at: pointer)
        }
        guard time <= now + EventRules.maximumLead else {
            let minutes = Int(EventRules.maximumLead.inSeconds / 60)
            throw CoreError(
                .unprocessable,
                "`timestamp` must be at most \(minutes) minutes ahead of the server's clock; got '\(text)'", at: pointer
            )
        }
        return min(time, now)
    }

    /// Returns the `value`; the default is 0.
    ///
    /// - Throws: 400 if it is not a number; 422 if it is too great or too small to be summed.
    public func value() throws(CoreError) -> Double {
        guard let value = object["value"], !value.isNull else { return 0 }
        return try EventAmount.number(value, "value", in: place)
    }

    /// Returns the `tags` as the detail that is stored with the event: `{"tags":{…}}`, or `{}` if there are none.
    ///
    /// - Throws: 400 if they are not an object; 422 if they are longer than ``EventDetail/limit``.
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
    ///
    /// - Throws: 400 if a member is absent or has a wrong form; 422 if the time or the value is out of range, or the
    ///   tags are too long.
    public init(_ body: EventInput) throws(CoreError) {
        let userID = try body.userID()
        let goal = Identifier(try body.object.text("goal", in: body.place))
        guard EventInput.isGoal(goal.string) else {
            throw CoreError(
                .invalid, "`goal` \(EventInput.goalRule(goal.string))", at: body.place.appending("goal"))
        }
        self.init(
            userID: userID, goal: goal, value: try body.value(), happenedAt: try body.happenedAt(),
            receivedAt: body.now, senderID: try body.name("id", limit: EventInput.idLimit),
            sdkKey: try body.sdkKey() ?? "",
            payload: try body.tags())
    }
}
