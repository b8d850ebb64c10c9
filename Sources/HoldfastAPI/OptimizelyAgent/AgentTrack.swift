import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// `POST /v1/track`: records that a user reached a goal, which is the event's key. Responds when the event is durable.
///
/// The Agent records only events that the datafile declares. Here any event is recorded, because experiments created
/// over HTTP have no declared events. If the datafile declares events but not this one, the response also has the
/// Agent's error, because the key may be misspelt.
struct TrackEndpoint {
    let services: Services

    func post(_ request: AgentRequest) async throws -> AgentResponse {
        let userID = try Self.userID(request.body)
        let attributes = try request.body.userAttributes(in: request.project)
        let tags = try request.body.object("eventTags") ?? JSONObject()
        guard let key = request.query.value("eventKey"), !key.isEmpty else {
            throw AgentError(.badRequest, "missing required path parameter: eventKey")
        }
        let datafile = request.project.datafile
        let event = datafile.event(key: Identifier(key))
        let notFound = event == nil ? "event with key \(JSONWriter.quoted(key)) not found" : nil
        guard EventInput.isGoal(key) else {
            return Self.response(userID, key, error: notFound)
        }
        let amount = EventAmount.OfTags(tags, at: ["eventTags"])
        let now = services.store.clock.now()
        let goal = GoalEvent(
            userID: userID, goal: Identifier(key), value: amount.value, happenedAt: now, receivedAt: now,
            sdkKey: request.project.sdkKey, payload: Self.payload(event, tags, attributes))
        _ = try await services.events.record([.goal(goal)])
        if let event {
            services.agentNotifications.send(
                event, by: User(id: userID, attributes: attributes), tags: tags, in: request.project)
        }
        if amount.fault != nil { services.ignoredAmounts.add(1, ordering: .relaxed) }
        let ignored = amount.fault.map { "\($0.detail), at \($0.pointer ?? []); the event counts without it" }
        let undeclared = datafile.events.isEmpty ? nil : notFound
        return Self.response(userID, key, error: undeclared ?? ignored)
    }

    /// Returns the user id, which may be empty: the Agent accepts events without a user.
    private static func userID(_ body: AgentBody) throws(AgentError) -> Identifier {
        let text = try body.text("userId")
        return text.isEmpty ? "" : try AgentBody.check(userID: text)
    }

    private static func payload(_ event: Event?, _ tags: JSONObject, _ attributes: JSONObject) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        if let event { writer.member("event_id", event.id.string) }
        writer.detail("tags", tags)
        writer.detail("attributes", attributes)
        writer.endObject()
        return writer.finish()
    }

    private static func response(_ userID: Identifier, _ eventKey: String, error: String? = nil) -> AgentResponse {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("userId", userID.string)
        writer.member("eventKey", eventKey)
        if let error { writer.member("error", error) }
        writer.endObject()
        return AgentResponse(.ok, writer)
    }
}
