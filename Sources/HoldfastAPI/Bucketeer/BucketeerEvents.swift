import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /register_events`: takes exposures (evaluation events) and goal events. Responds when all are durable, and
/// lists the events that were not stored, by id.
struct BucketeerEventEndpoint {
    let services: Services
    let store: any ProfileStore
    let projects: ProjectView

    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let place: JSONPointer = ["events"]
        guard let list = body["events"]?.array, !list.isEmpty else {
            let found = body["events"].map { $0.array == nil ? $0.kind : "an empty one" } ?? "nothing"
            throw CoreError(.invalid, "`events` must be an array of at least one event; got \(found)", at: place)
        }
        let limit = services.options.elementLimit
        guard list.count <= limit else {
            throw CoreError(.invalid, "`events` must have at most \(limit) elements; got \(list.count)", at: place)
        }
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
        let now = services.store.clock.now()
        let items = Join(
            list.count, completion: BucketeerEventRecording(reporter: services.reporter, call: call).record)
        call.forEach(list.indices) { [ids] index in
            take(list[index], id: ids[index], now: now, call) { items.set($0, at: index) }
        }
    }

    private func take(
        _ element: JSONValue, id: Identifier, now: Timestamp, _ call: Call,
        _ completion: @escaping @Sendable (BucketeerEventItem) -> Void
    ) {
        do throws(EventRefusal) {
            let project = try? projects.project(named: nil)
            try take(BucketeerEvent(element, id: id, project, now: now), completion)
        } catch {
            guard error.error.concernsDefinitions, !call.isUpToDate else { return completion(.refused(id, error)) }
            call.updating(projects) { result in
                switch result {
                case .success(let call): take(element, id: id, now: now, call, completion)
                case .failure(let error):
                    completion(.refused(id, EventRefusal(CoreError(error), isRetriable: true)))
                }
            }
        }
    }

    /// - Parameter completion: called once, unless the event is refused at once.
    private func take(
        _ event: BucketeerEvent, _ completion: @escaping @Sendable (BucketeerEventItem) -> Void
    ) throws(EventRefusal) {
        switch event.kind {
        case .evaluation:
            guard let input = try event.exposure() else { return completion(.passed) }
            // The profile may have an override, which keeps the exposure out of results.
            store.profile(of: input.userID) { read in
                do throws(EventRefusal) {
                    switch read {
                    case .success(let profile): completion(.event(.exposure(try input.exposure(profile))))
                    case .failure(let error): throw EventRefusal(CoreError(error), isRetriable: true)
                    }
                } catch {
                    completion(.refused(event.id, error))
                }
            }
        case .goal:
            completion(.event(.goal(try event.goal())))
        case .metrics:
            services.bucketeer.countReport()
            completion(.passed)
        }
    }
}

/// An event as SDKs send it: `{"id","event":{"@type",…}}`.
private struct BucketeerEvent {
    enum Kind: String {
        case evaluation = "EvaluationEvent"
        case goal = "GoalEvent"
        case metrics = "MetricsEvent"
    }

    let id: Identifier
    let kind: Kind
    private let event: JSONObject
    private let project: Project?
    private let now: Timestamp

    /// The age and the lead of an event that the contract allows, in milliseconds.
    private static let maximumAge: Timestamp = 31 * 86_400_000
    private static let maximumLead: Timestamp = 3_600_000
    private static let typePrefix = "type.googleapis.com/bucketeer.event.client."

    init(_ value: JSONValue, id: Identifier, _ project: Project?, now: Timestamp) throws(EventRefusal) {
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

    /// Returns the exposure; `nil` if the user was not in an experiment.
    func exposure() throws(EventRefusal) -> ExposureInput? {
        let (userID, happenedAt) = (try userID(), try happenedAt())
        let (key, variationID) = (Identifier(try text("featureId")), Identifier(try text("variationId")))
        guard !key.string.isEmpty else { throw Self.refusal("`featureId` is required") }
        // The SDK had no evaluation, and returned the default of its caller.
        let reason = event["reason"]?["type"]?.string ?? ""
        if reason == "CLIENT" || reason.hasPrefix("ERROR_") { return nil }
        guard let project, let flag = project.datafile.flag(key: key) else {
            throw EventRefusal(CoreError(.invalid, "no flag has the key '\(key)'", concernsDefinitions: true))
        }
        let rule = event["reason"]?["ruleId"]?.string.map { Identifier($0) }
        let experiments = flag.experiments.filter { $0.variation(id: variationID) != nil }
        guard let experiment = experiments.first(where: { $0.key == rule }) ?? experiments.first,
            let variation = experiment.variation(id: variationID)
        else { return nil }
        return ExposureInput(
            userID: userID, happenedAt: happenedAt, project: project, experiment: experiment, variation: variation)
    }

    func goal() throws(EventRefusal) -> GoalEvent {
        let goal = try text("goalId")
        guard EventInput.isName(goal, limit: EventInput.goalLimit) else {
            throw Self.refusal("`goalId` must be 1 to 255 bytes long, without NUL; got \(goal.utf8.count) bytes")
        }
        let value = event["value"].map { $0.isNull ? 0 : $0.double ?? .nan } ?? 0
        guard EventRules.isUsable(value: value) else {
            throw Self.refusal("`value` must be 0, or a number between 1e-15 and 1e15 in magnitude")
        }
        return GoalEvent(
            userID: try userID(), goal: Identifier(goal), value: value, happenedAt: try happenedAt(), receivedAt: now,
            senderID: id, sdkKey: project?.sdkKey ?? "", payload: try tags())
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

    private func userID() throws(EventRefusal) -> Identifier {
        do throws(CoreError) {
            let user = try event.protobufMessage("user")?.protobufText("id") ?? ""
            let text = try event.protobufText("userId")
            return try ProfileInput.checkUserID(text.isEmpty ? user : text, at: nil)
        } catch {
            throw EventRefusal(error)
        }
    }

    /// Returns the time. An event that is older than Holdfast's rules allow gets the oldest allowed time.
    private func happenedAt() throws(EventRefusal) -> Timestamp {
        let seconds: Int64
        do throws(CoreError) {
            seconds = try event.protobufInteger("timestamp")
        } catch {
            throw EventRefusal(error)
        }
        let (time, isTooGreat) = seconds.multipliedReportingOverflow(by: 1_000)
        guard !isTooGreat, time >= now - Self.maximumAge, time <= now + Self.maximumLead else {
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

/// One element of the body after parsing.
private enum BucketeerEventItem: Sendable {
    case event(UserEvent)
    /// Accepted and not stored.
    case passed
    case refused(Identifier, EventRefusal)
}

/// Records the events of one request, and responds.
private struct BucketeerEventRecording: Sendable {
    let reporter: EventReporter
    let call: Call

    func record(_ items: [BucketeerEventItem]) {
        var events: [UserEvent] = []
        var errors = JSONObject()
        for item in items {
            switch item {
            case .event(let event): events.append(event)
            case .passed: break
            case .refused(let id, let refusal):
                let message = refusal.error.detail.shortened(to: Problem.longestDetail)
                errors[id.string] = ["retriable": .bool(refusal.isRetriable), "message": .string(message)]
            }
        }
        let response: JSONValue = ["errors": .object(errors)]
        guard !events.isEmpty else { return call.respond(json: response.encoded()) }
        reporter.record(events) { [call] result in
            switch result {
            case .success: call.respond(json: response.encoded())
            case .failure(let error): call.respond(BucketeerError(error).response)
            }
        }
    }
}

extension JSONValue {
    /// A member of an object; `nil` if the value is no object or lacks the member.
    fileprivate subscript(name: String) -> JSONValue? { object?[name] }
}
