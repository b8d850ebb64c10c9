import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// The body that the SDKs' event processors send: visitors, each with snapshots of decisions and of events.
///
/// Unknown members are ignored, as the published contract requires. A fault of one event does not affect the others.
///
/// An SDK reports a decision and the time of its effect separately. A snapshot lists decisions; the events
/// `campaign_activated` of the snapshot name the campaigns of the decisions that took effect, and the times. All other
/// events are goals.
struct SDKEventBatch {
    typealias Events = [Result<UserEvent, CoreError>]

    let visitors: [JSONValue]
    /// The projects to which the events may belong; the body has no SDK key.
    private let projects: [Project]
    private let now: Instant
    /// The size in bytes of the visitors' attributes in the details of all events so far.
    private var attributeBytes = 0
    /// The faults of amounts that were ignored since the last call of ``takeIgnoredAmounts()``.
    private var ignoredAmounts: [CoreError] = []

    /// The maximum of ``attributeBytes``. Each event has the attributes of its visitor in its detail, and a visitor may
    /// have thousands of events.
    private static let attributeLimit = 16 << 20
    /// The event with which an SDK reports the decisions of its snapshot.
    private static let activation: JSONValue = "campaign_activated"

    /// - Throws: 400 if the body is not an object with `visitors`, 404 if no project has the SDK key.
    init(
        _ value: JSONValue, sdkKey: String?, _ projects: ProjectView, for access: ProjectAccess, now: Instant
    ) throws(CoreError) {
        let object = try value.requiredObject("a batch of events", at: [])
        guard let visitors = try object.list("visitors", in: []) else {
            throw CoreError(.invalid, "`visitors` is required", at: ["visitors"])
        }
        self.visitors = visitors
        self.projects = try projects.projects(
            sdkKey: sdkKey, projectID: object["project_id"]?.string, for: access)
        self.now = now
    }

    /// Returns the events of a visitor: exposures for impressions, goals for conversions.
    mutating func events(ofVisitor index: Int) -> Events {
        let place = JSONPointer().appending("visitors").appending(index)
        var events = Events()
        do throws(CoreError) {
            let object = try visitors[index].requiredObject("a visitor", at: place)
            let id = try object.text("visitor_id", in: place)
            let userID = try ProfileInput.checkUserID(id, at: place.appending("visitor_id"))
            let attributes = Self.attributes(of: object)
            let visitor = Visitor(
                userID: userID, hasAttributes: !attributes.isEmpty, attributes: EventDetail.encode(attributes))
            let snapshots = try object.list("snapshots", in: place) ?? []
            for (number, snapshot) in snapshots.enumerated() {
                let place = place.appending("snapshots").appending(number)
                do throws(CoreError) {
                    try append(snapshot, of: visitor, at: place, to: &events)
                } catch {
                    events.append(.failure(error))
                }
            }
        } catch {
            events.append(.failure(error))
        }
        return events
    }

    /// Returns the faults of amounts that were ignored since the last call.
    mutating func takeIgnoredAmounts() -> [CoreError] {
        defer { ignoredAmounts = [] }
        return ignoredAmounts
    }

    /// The user of a visitor element, with the attributes for the details of its events.
    private struct Visitor {
        let userID: Identifier
        let hasAttributes: Bool
        /// The encoded attributes.
        let attributes: [UInt8]
    }

    /// Writes a visitor's attributes into the detail of an event; `null` beyond the limit.
    private mutating func appendAttributes(of visitor: Visitor, to detail: inout JSONWriter) {
        attributeBytes += visitor.attributes.count
        detail.key("attributes")
        if attributeBytes <= Self.attributeLimit { detail.raw(visitor.attributes) } else { detail.null() }
    }

    /// Returns the attributes by their keys.
    private static func attributes(of visitor: JSONObject) -> JSONObject {
        var attributes = JSONObject()
        for attribute in visitor["attributes"]?.array ?? [] {
            guard let key = attribute.object?["key"]?.string ?? attribute.object?["entity_id"]?.string else { continue }
            attributes[key] = attribute.object?["value"] ?? .null
        }
        return attributes
    }

    /// Appends the events of a snapshot: first its goals, then the exposures of its decisions.
    private mutating func append(
        _ snapshot: JSONValue, of visitor: Visitor, at place: JSONPointer, to events: inout Events
    ) throws(CoreError) {
        let object = try snapshot.requiredObject("a snapshot", at: place)
        var activations = Activations(of: try object.list("decisions", in: place) ?? [])
        for (number, event) in (try object.list("events", in: place) ?? []).enumerated() {
            let eventPlace = place.appending("events").appending(number)
            do throws(CoreError) {
                let event = try event.requiredObject("an event", at: eventPlace)
                let happenedAt = try happenedAt(event, at: eventPlace)
                if event["key"] == Self.activation || event["type"] == Self.activation {
                    activations.add(event, at: happenedAt)
                } else {
                    events.append(.success(.goal(try goal(event, of: visitor, happenedAt, at: eventPlace))))
                }
            } catch {
                events.append(.failure(error))
            }
        }
        append(activations, of: visitor, in: place, to: &events)
    }

    /// Returns the `timestamp`; the current time if the timestamp is absent or in the future. The clock of a phone may
    /// be wrong, and the protocol has no way to report this to the sender.
    ///
    /// - Throws: 400 if the timestamp is not a number, 422 if it is too old.
    private func happenedAt(_ event: JSONObject, at place: JSONPointer) throws(CoreError) -> Instant {
        guard let value = event["timestamp"], !value.isNull else { return now }
        guard let milliseconds = value.integer ?? value.double.flatMap({ Int64(exactly: $0.rounded()) }) else {
            throw CoreError(
                .invalid, "`timestamp` must be a whole number of milliseconds since 1970; got \(value.kind)",
                at: place.appending("timestamp"))
        }
        let time = Instant(milliseconds: milliseconds)
        guard time >= now - EventRules.maximumAge else {
            throw CoreError(
                .unprocessable, "`timestamp` must be at most 7 days ago; got \(milliseconds)",
                at: place.appending("timestamp"))
        }
        return min(time, now)
    }
}

// MARK: - Impressions and conversions

extension SDKEventBatch {
    /// The decisions of a snapshot, and when each first took effect.
    ///
    /// An event activates the decisions of the campaign that it names. An event that names the campaign of no decision
    /// activates all of them. Repeated events do not add exposures.
    private struct Activations {
        let decisions: [JSONValue]
        private let campaigns: Set<[UInt8]>
        /// The first activation of each campaign.
        private var times: [[UInt8]: Instant] = [:]
        /// The first activation of all decisions.
        private var timeOfAll: Instant?

        init(of decisions: [JSONValue]) {
            self.decisions = decisions
            campaigns = Set(decisions.map { Self.key($0.object?["campaign_id"]) })
        }

        /// Returns the id of a campaign for comparisons: its JSON, which is empty for an absent id.
        private static func key(_ value: JSONValue?) -> [UInt8] { value?.encoded() ?? [] }

        /// Adds an event `campaign_activated`.
        mutating func add(_ event: JSONObject, at time: Instant) {
            let campaign = Self.key(event["entity_id"])
            if campaigns.contains(campaign) {
                times[campaign] = min(times[campaign] ?? time, time)
            } else {
                timeOfAll = min(timeOfAll ?? time, time)
            }
        }

        /// Returns when a decision took effect; `nil` if no event activates it.
        func time(of decision: JSONValue) -> Instant? {
            [times[Self.key(decision.object?["campaign_id"])], timeOfAll].compactMap(\.self).min()
        }
    }

    /// Appends the exposures of the decisions that took effect.
    private mutating func append(
        _ activations: Activations, of visitor: Visitor, in snapshot: JSONPointer, to events: inout Events
    ) {
        for (index, decision) in activations.decisions.enumerated() {
            guard let happenedAt = activations.time(of: decision) else { continue }
            let place = snapshot.appending("decisions").appending(index)
            do throws(CoreError) {
                let decision = try decision.requiredObject("a decision", at: place)
                // A decision without an experiment id is of a holdout, or of a delivery to everyone else. Deliveries
                // are not experiments, so they have no exposures.
                let reportedID = try decision.optionalText("experiment_id", in: place) ?? ""
                guard let experimentID = reportedID.isEmpty ? holdoutID(of: decision) : reportedID else { continue }
                guard !projects.contains(where: { $0.delivers(experimentID: Identifier(experimentID)) }) else {
                    continue
                }
                let exposure = try reported(decision, experimentID, of: visitor, happenedAt, at: place)
                events.append(.success(.exposure(try exposure.exposure(in: projects, at: place))))
            } catch {
                events.append(.failure(error))
            }
        }
    }

    /// Returns the id of the holdout of a decision, found by its key, because SDKs send null for an id that is not a
    /// decimal number.
    private func holdoutID(of decision: JSONObject) -> String? {
        let metadata = decision["metadata"]?.object
        guard metadata?["rule_type"]?.string == Decision.RuleType.holdout.rawValue,
            let key = metadata?["rule_key"]?.string
        else { return nil }
        return projects.lazy.compactMap { $0.holdoutID(key: Identifier(key)) }.first?.string
    }

    /// Reads a decision as an exposure.
    private mutating func reported(
        _ decision: JSONObject, _ experimentID: String, of visitor: Visitor, _ happenedAt: Instant,
        at place: JSONPointer
    ) throws(CoreError) -> ReportedExposure {
        let metadata = decision["metadata"]?.object ?? JSONObject()
        func name(_ member: String) -> String? { metadata[member]?.string.flatMap { $0.isEmpty ? nil : $0 } }
        // SDKs send null for an id that is not a decimal number.
        let variationID = try decision.optionalText("variation_id", in: place).flatMap { $0.isEmpty ? nil : $0 }
        var detail = JSONWriter()
        detail.beginObject()
        if let key = name("variation_key") { detail.member("variation_key", key) }
        if let key = name("flag_key") { detail.member("flag_key", key) }
        if let type = name("rule_type") { detail.member("rule_type", type) }
        if visitor.hasAttributes { appendAttributes(of: visitor, to: &detail) }
        detail.endObject()
        return ReportedExposure(
            userID: visitor.userID, happenedAt: happenedAt, experimentID: Identifier(experimentID),
            experimentKey: name("rule_key").map { Identifier($0) }, variationID: variationID.map { Identifier($0) },
            variationKey: name("variation_key").map { Identifier($0) }, payload: detail.finish())
    }

    /// Reads an event other than `campaign_activated` as a goal.
    private mutating func goal(
        _ event: JSONObject, of visitor: Visitor, _ happenedAt: Instant, at place: JSONPointer
    ) throws(CoreError) -> GoalEvent {
        let key = try event.text("key", in: place)
        guard EventInput.isGoal(key) else {
            throw CoreError(.invalid, "`key` \(EventInput.goalRule(key))", at: place.appending("key"))
        }
        let uuid = try event.optionalText("uuid", in: place)
        guard uuid.map({ EventInput.isName($0, limit: 128) }) ?? true else {
            throw CoreError(.invalid, "`uuid` must be 1 to 128 bytes long, without NUL", at: place.appending("uuid"))
        }
        // With several projects, the event is of no certain one, so its SDK key is empty.
        return GoalEvent(
            userID: visitor.userID, goal: Identifier(key), value: try value(event, at: place),
            happenedAt: happenedAt, receivedAt: now, senderID: uuid.map { Identifier($0) },
            sdkKey: projects.count == 1 ? projects[0].sdkKey : "",
            payload: detail(of: event, visitor))
    }

    /// Returns the amount of a goal: the `value`, or else the `revenue`, a whole number of cents. An event has neither
    /// if the SDK found no number in the tags `value` and `revenue`. The amount is then read from the tags, as for
    /// `/v1/track`.
    private mutating func value(_ event: JSONObject, at place: JSONPointer) throws(CoreError) -> Double {
        guard (event["value"] ?? .null).isNull, (event["revenue"] ?? .null).isNull else {
            return try EventAmount.first(of: ["value", "revenue"], in: event, at: place)
        }
        let amount = EventAmount.OfTags(event["tags"]?.object ?? JSONObject(), at: place.appending("tags"))
        if let fault = amount.fault { ignoredAmounts.append(fault) }
        return amount.value
    }

    /// Returns the detail of a goal, which is kept for exports.
    private mutating func detail(of event: JSONObject, _ visitor: Visitor) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        if let id = event["entity_id"]?.string { writer.member("event_id", id) }
        if let revenue = event["revenue"]?.integer { writer.member("revenue", revenue) }
        writer.detail("tags", event["tags"]?.object ?? JSONObject())
        appendAttributes(of: visitor, to: &writer)
        writer.endObject()
        return writer.finish()
    }
}

extension JSONValue {
    /// Returns the value as an object that may have unknown members.
    fileprivate func requiredObject(_ name: String, at place: JSONPointer) throws(CoreError) -> JSONObject {
        guard let object else { throw CoreError(.invalid, "\(name) must be an object; got \(kind)", at: place) }
        return object
    }
}

extension JSONObject {
    /// Returns an array; `nil` if it is absent or null.
    fileprivate func list(_ name: String, in place: JSONPointer) throws(CoreError) -> [JSONValue]? {
        guard let value = self[name], !value.isNull else { return nil }
        guard let list = value.array else {
            throw CoreError(.invalid, "`\(name)` must be an array; got \(value.kind)", at: place.appending(name))
        }
        return list
    }
}
