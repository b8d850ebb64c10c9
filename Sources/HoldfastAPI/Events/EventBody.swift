import Bucketing
import HTTPServer
import JSON
import Storage

/// Why an event is not taken, and whether sending it again may help.
struct EventRefusal: Error {
    var problem: Problem
    var isRetriable: Bool

    /// - Parameter isRetriable: whether what is wrong lies not in the event alone.
    init(_ problem: Problem, isRetriable: Bool = false) {
        self.problem = problem
        self.isRetriable = isRetriable
    }
}

/// One event as a client sends it: an object, at a place in the body.
struct EventBody {
    let object: JSONObject
    let place: JSONPointer
    let now: Timestamp

    /// - Parameter known: the members that an event of this kind may have.
    init(_ value: JSONValue, knowing known: [String], at place: JSONPointer, now: Timestamp) throws(Problem) {
        object = try value.object("an event", knowing: known, at: place)
        self.place = place
        self.now = now
    }

    func userID() throws(Problem) -> Identifier {
        try ProfileBody.checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
    }

    func sdkKey() throws(Problem) -> String? {
        try object.optionalText("sdk_key", in: place)
    }

    /// A text of 1 to `limit` bytes without NUL.
    func name(_ member: String, limit: Int) throws(Problem) -> Identifier? {
        guard let text = try object.optionalText(member, in: place) else { return nil }
        guard Self.isName(text, limit: limit) else {
            throw Problem(
                .badRequest, "`\(member)` must be 1 to \(limit) bytes long, without NUL; got \(text.utf8.count) bytes",
                at: place.appending(member))
        }
        return Identifier(text)
    }

    /// Bytes of a goal.
    static let goalLimit = 255

    static func isName(_ text: String, limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && !text.utf8.contains(0)
    }

    /// The `timestamp`, or now.
    ///
    /// - Throws: 422 when it lies further back or ahead than ``EventRules`` allow.
    func happenedAt() throws(Problem) -> Timestamp {
        let pointer = place.appending("timestamp")
        guard let text = try object.optionalText("timestamp", in: place) else { return now }
        guard let time = Timestamp(rfc3339: text) else {
            throw Problem(
                .badRequest, "`timestamp` must be a time such as 2026-01-31T12:00:00.000Z (RFC 3339); got '\(text)'",
                at: pointer)
        }
        guard time >= now - EventRules.maximumAge else {
            throw Problem(.unprocessableContent, "`timestamp` must be at most 7 days ago; got '\(text)'", at: pointer)
        }
        guard time <= now + EventRules.maximumLead else {
            throw Problem(
                .unprocessableContent, "`timestamp` must be at most 5 minutes ahead of the server's clock; got '\(text)'",
                at: pointer)
        }
        return min(time, now)
    }

    /// The `value`; 0 when there is none.
    func value() throws(Problem) -> Double {
        guard let value = object["value"], !value.isNull else { return 0 }
        let pointer = place.appending("value")
        guard let number = value.double else {
            throw Problem(.badRequest, "`value` must be a number; got \(value.kind)", at: pointer)
        }
        guard EventRules.isUsable(value: number) else {
            throw Problem(
                .unprocessableContent, "`value` must be 0, or between 1e-15 and 1e15 in magnitude; got \(number)", at: pointer)
        }
        return number
    }

    /// `{"tags":{…}}`, or `{}` when there are none.
    func tags() throws(Problem) -> [UInt8] {
        guard let value = object["tags"], !value.isNull else { return Array("{}".utf8) }
        let pointer = place.appending("tags")
        guard value.object != nil else {
            throw Problem(.badRequest, "`tags` must be an object; got \(value.kind)", at: pointer)
        }
        let wrapped: JSONValue = ["tags": value]
        let payload = wrapped.encoded()
        guard payload.count <= EventDetail.limit else {
            throw Problem(.unprocessableContent, "`tags` must be at most \(EventDetail.limit) bytes of JSON", at: pointer)
        }
        return payload
    }
}

extension GoalEvent {
    static let members = ["id", "user_id", "goal", "value", "timestamp", "tags", "sdk_key"]

    /// `{"id"?,"user_id","goal","value"?,"timestamp"?,"tags"?,"sdk_key"?}`
    init(_ body: EventBody) throws(Problem) {
        let userID = try body.userID()
        guard let goal = try body.name("goal", limit: EventBody.goalLimit) else {
            throw Problem(.badRequest, "`goal` is required", at: body.place.appending("goal"))
        }
        self.init(
            userID: userID, goal: goal, value: try body.value(), happenedAt: try body.happenedAt(),
            receivedAt: body.now, senderID: try body.name("id", limit: 128), sdkKey: try body.sdkKey() ?? "",
            payload: try body.tags())
    }
}
