import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /register_events`: records exposures (evaluation events) and goal events. Responds when all valid events are
/// durable. The response lists the ids of the events that were refused.
struct BucketeerEventEndpoint {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    private static let place: JSONPointer = ["events"]

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let list = try Self.elements(of: body, limit: services.options.elementLimit)
        let ids = try Self.ids(of: list)
        let now = services.store.clock.now()
        let results = try await call.results(of: list.indices, projects) { index, call in
            try await event(list[index], id: ids[index], call, now: now)
        }
        var events: [UserEvent] = []
        var errors = JSONObject()
        for (id, result) in zip(ids, results) {
            switch result {
            case .success(let event): if let event { events.append(event) }
            case .failure(let error):
                let refusal = EventRefusal(of: error)
                let message = refusal.error.detail.shortened(to: Problem.longestDetail)
                errors[id.string] = ["retriable": .bool(refusal.isRetriable), "message": .string(message)]
            }
        }
        _ = try await services.reporter.record(events)
        return .json(["errors": .object(errors)])
    }

    private static func elements(of body: JSONValue, limit: Int) throws(CoreError) -> [JSONValue] {
        guard let list = body["events"]?.array, !list.isEmpty else {
            let found = body["events"].map { $0.array == nil ? $0.kind : "an empty one" } ?? "nothing"
            throw CoreError(.invalid, "`events` must be an array of at least one event; got \(found)", at: place)
        }
        guard list.count <= limit else {
            throw CoreError(.invalid, "`events` must have at most \(limit) elements; got \(list.count)", at: place)
        }
        return list
    }

    /// Returns the ids of the events.
    ///
    /// - Throws: 400 for an invalid id. The whole request is refused, because the response could not name the event.
    private static func ids(of list: [JSONValue]) throws(CoreError) -> [Identifier] {
        var ids: [Identifier] = []
        for (index, element) in list.enumerated() {
            let id = element["id"]?.string ?? ""
            guard EventInput.isName(id, limit: 128) else {
                throw CoreError(
                    .invalid, "an event must have an `id` of 1 to 128 bytes; got \(id.utf8.count) bytes",
                    at: place.appending(index).appending("id"))
            }
            ids.append(Identifier(id))
        }
        return ids
    }

    /// Reads one event.
    ///
    /// - Returns: the event to store; `nil` for an event that is accepted but not stored.
    private func event(
        _ element: JSONValue, id: Identifier, _ call: Call, now: Instant
    ) async throws -> UserEvent? {
        let event = try BucketeerEvent(element, id: id, try? projects.project(named: nil, for: call.access), now: now)
        switch event.kind {
        case .evaluation:
            guard let input = try event.exposure(services.uses) else { return nil }
            // The profile may have an override, which keeps the exposure out of results.
            let profile = try await completed { store.profile(of: input.userID, $0) }
            return .exposure(try input.exposure(profile))
        case .goal: return .goal(try event.goal())
        case .metrics:
            services.bucketeer.countReport()
            return nil
        }
    }
}

/// An event as SDKs send it: `{"id","event":{"@type",…}}`.
private struct BucketeerEvent {
    /// The kind of an event, as the end of its `@type` names it.
    enum Kind: String {
        case evaluation = "EvaluationEvent"
        case goal = "GoalEvent"
        case metrics = "MetricsEvent"
    }

    let id: Identifier
    let kind: Kind
    private let event: JSONObject
    /// The project of the API key; `nil` if it has none.
    private let project: Project?
    private let now: Instant

    /// The maximum age of an event, as defined by the contract.
    private static let maximumAge = TimeSpan.days(31)
    /// How far the time of an event may be ahead of the server's clock, as defined by the contract.
    private static let maximumLead = TimeSpan.hours(1)
    private static let typePrefix = "type.googleapis.com/bucketeer.event.client."

    init(_ value: JSONValue, id: Identifier, _ project: Project?, now: Instant) throws(EventRefusal) {
        self.id = id
        self.project = project
        self.now = now
        guard let event = value["event"]?.object else { throw Self.refusal("`event` must be an object") }
        let type = event["@type"]?.string ?? ""
        guard type.hasPrefix(Self.typePrefix), let kind = Kind(rawValue: String(type.dropFirst(Self.typePrefix.count)))
        else {
            throw Self.refusal("`@type` must be an EvaluationEvent, GoalEvent or MetricsEvent; got '\(type)'")
        }
        self.event = event
        self.kind = kind
    }

    /// Returns the exposure of an evaluation event; `nil` if the variation is not one of an experiment. Also records
    /// that the flag was used.
    func exposure(_ uses: UseRecorder) throws(EventRefusal) -> ExposureInput? {
        let userID = try userID()
        let happenedAt = try happenedAt()
        let key = Identifier(try text("featureId"))
        let variationID = Identifier(try text("variationId"))
        guard !key.string.isEmpty else { throw Self.refusal("`featureId` is required") }
        // These reasons mean that the SDK had no evaluation, and returned the default of its caller.
        let reason = event["reason"]?["type"]?.string ?? ""
        if reason == "CLIENT" || reason.hasPrefix("ERROR_") { return nil }
        guard let project else {
            throw EventRefusal(
                CoreError(.invalid, "an evaluation needs a project; that of the API key has none", mayBeStale: true))
        }
        guard let flag = project.datafile.flag(key: key) else {
            throw EventRefusal(CoreError(.invalid, "no flag has the key '\(key)'", mayBeStale: true))
        }
        let variationKey = flag.variations.first { $0.id == variationID }?.key
        uses.note(LastUse.Subject(sdkKey: project.sdkKey, .evaluated, key, variation: variationKey ?? ""))
        // The id of the rule that decided is the key of its experiment. If the event lacks the rule, the first
        // experiment with the variation counts.
        let rule = event["reason"]?["ruleId"]?.string.map { Identifier($0) }
        let experiments = flag.experiments.filter { $0.variation(id: variationID) != nil }
        guard let experiment = experiments.first(where: { $0.key == rule }) ?? experiments.first,
            let variation = experiment.variation(id: variationID)
        else { return nil }
        return ExposureInput(
            userID: userID, happenedAt: happenedAt, project: project, experiment: experiment, variation: variation)
    }

    /// Returns the goal of a goal event.
    func goal() throws(EventRefusal) -> GoalEvent {
        let goal = try text("goalId")
        guard EventInput.isGoal(goal) else {
            throw Self.refusal("`goalId` \(EventInput.goalRule(goal))")
        }
        return GoalEvent(
            userID: try userID(), goal: Identifier(goal), value: try value(), happenedAt: try happenedAt(),
            receivedAt: now, senderID: id, sdkKey: project?.sdkKey ?? "", payload: try tags())
    }

    private func value() throws(EventRefusal) -> Double {
        do throws(CoreError) {
            return try EventAmount.first(of: ["value"], in: event, at: ["event"])
        } catch {
            throw EventRefusal(error)
        }
    }

    /// Returns `{"tags":{…}}` with the tag of the SDK and its data about the device.
    private func tags() throws(EventRefusal) -> [UInt8] {
        var tags = event["metadata"]?.object ?? JSONObject()
        let tag = try text("tag")
        if !tag.isEmpty { tags["tag"] = .string(tag) }
        var writer = JSONWriter()
        writer.beginObject()
        writer.detail("tags", tags)
        writer.endObject()
        return writer.finish()
    }

    /// Returns the `userId`; if that is empty, the `id` of `user`.
    private func userID() throws(EventRefusal) -> Identifier {
        do throws(CoreError) {
            let user = try event.protobufMessage("user")?.protobufText("id") ?? ""
            let text = try event.protobufText("userId")
            return try ProfileInput.checkUserID(text.isEmpty ? user : text, at: nil)
        } catch {
            throw EventRefusal(error)
        }
    }

    /// Returns the time of the event. Holdfast stores no event that is older than ``EventRules/maximumAge`` or in the
    /// future. The contract allows both, so the time is moved to the nearest allowed one.
    ///
    /// - Throws: a refusal if the time is outside of the limits of the contract.
    private func happenedAt() throws(EventRefusal) -> Instant {
        let seconds: Int64
        do throws(CoreError) {
            seconds = try event.protobufInteger("timestamp")
        } catch {
            throw EventRefusal(error)
        }
        let time = Instant(secondsSince1970: seconds)
        guard time >= now - Self.maximumAge, time <= now + Self.maximumLead else {
            throw Self.refusal(
                "`timestamp` must be in seconds, at most 31 days ago and 1 hour ahead of the server's clock; got \(seconds)"
            )
        }
        return min(max(time, now - EventRules.maximumAge), now)
    }

    private func text(_ name: String) throws(EventRefusal) -> String {
        do throws(CoreError) {
            return try event.protobufText(name)
        } catch {
            throw EventRefusal(error)
        }
    }

    private static func refusal(_ detail: String) -> EventRefusal {
        EventRefusal(CoreError(.invalid, detail))
    }
}

extension JSONValue {
    /// A member of an object; `nil` if the value is no object or lacks the member.
    fileprivate subscript(name: String) -> JSONValue? { object?[name] }
}
