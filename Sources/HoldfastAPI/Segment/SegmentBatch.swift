import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// The body of a request: `{"batch":[…],"sentAt"?}`, with messages of Segment's specification. Unknown members are
/// ignored, as the published contract requires.
struct SegmentBatch {
    let messages: [JSONValue]
    /// The projects to which the events may belong. An exposure belongs to the first project that has the experiment.
    private let projects: [Project]
    private let now: Instant
    /// How far the sender's clock is ahead of this server's; zero without `sentAt`.
    private let lead: TimeSpan

    private static let place = JSONPointer().appending("batch")
    /// The name of the exposure event in Segment's specification of A/B tests.
    private static let experimentViewed = "Experiment Viewed"
    /// The maximum number of variations that an error lists.
    private static let maximumListedVariations = 20

    /// - Throws: 400 if the body is not an object with `batch`, 404 if no project has the SDK key.
    init(
        _ value: JSONValue, sdkKey: String?, _ projects: ProjectView, for access: ProjectAccess, limit: Int,
        now: Instant
    ) throws(CoreError) {
        guard let object = value.object else {
            throw CoreError(.invalid, "a batch must be an object; got \(value.kind)", at: [])
        }
        guard let messages = object["batch"]?.array else {
            let found = object["batch"]?.kind ?? "nothing"
            throw CoreError(.invalid, "`batch` must be an array of messages; got \(found)", at: Self.place)
        }
        guard messages.count <= limit else {
            throw CoreError(
                .invalid, "`batch` must have at most \(limit) messages; got \(messages.count)", at: Self.place)
        }
        self.messages = messages
        self.projects = try projects.projects(sdkKey: sdkKey, projectID: nil, for: access)
        self.now = now
        let sentAt = object["sentAt"]?.string.flatMap { Instant(rfc3339: $0) }
        lead = sentAt.map { $0 - now } ?? .zero
    }

    /// Returns the event of a message; `nil` for a message that is not an event, such as `identify`.
    func event(at index: Int) throws(CoreError) -> UserEvent? {
        let place = Self.place.appending(index)
        guard let message = messages[index].object else {
            throw CoreError(.invalid, "a message must be an object; got \(messages[index].kind)", at: place)
        }
        guard try message.text("type", in: place) == "track" else { return nil }
        let name = try message.text("event", in: place)
        let userID = try userID(of: message, at: place)
        let happenedAt = try happenedAt(message, at: place)
        let properties = message["properties"]?.object ?? JSONObject()
        guard name == Self.experimentViewed else {
            return .goal(try goal(name, message, properties, of: userID, happenedAt, at: place))
        }
        return .exposure(try exposure(properties, of: userID, happenedAt, at: place.appending("properties")))
    }

    /// Returns `userId`, or else `anonymousId`.
    private func userID(of message: JSONObject, at place: JSONPointer) throws(CoreError) -> Identifier {
        let member = message["userId"]?.string.map { $0.isEmpty } ?? true ? "anonymousId" : "userId"
        guard let id = message[member]?.string else {
            throw CoreError(.invalid, "`userId` or `anonymousId` is required, a string", at: place)
        }
        return try ProfileInput.checkUserID(id, at: place.appending(member))
    }

    /// Returns the `timestamp`, corrected by the lead of the sender's clock, as Segment does; the current time if the
    /// timestamp is absent or still in the future.
    ///
    /// - Throws: 422 if the timestamp is too old.
    private func happenedAt(_ message: JSONObject, at place: JSONPointer) throws(CoreError) -> Instant {
        guard let time = try message.optionalTime("timestamp", in: place) else { return now }
        let corrected = time - lead
        guard corrected >= now - EventRules.maximumAge else {
            throw CoreError(
                .unprocessable, "`timestamp` must be at most 7 days ago; got '\(message["timestamp"]?.string ?? "")'",
                at: place.appending("timestamp"))
        }
        return min(corrected, now)
    }

    /// Reads an event other than `Experiment Viewed` as a goal.
    private func goal(
        _ name: String, _ message: JSONObject, _ properties: JSONObject, of userID: Identifier,
        _ happenedAt: Instant, at place: JSONPointer
    ) throws(CoreError) -> GoalEvent {
        guard EventInput.isGoal(name) else {
            throw CoreError(.invalid, "`event` \(EventInput.goalRule(name))", at: place.appending("event"))
        }
        let id = try message.optionalText("messageId", in: place)
        guard id.map({ EventInput.isName($0, limit: 128) }) ?? true else {
            throw CoreError(
                .invalid, "`messageId` must be 1 to 128 bytes long, without NUL", at: place.appending("messageId"))
        }
        var payload = JSONWriter()
        payload.beginObject()
        payload.detail("tags", properties)
        payload.endObject()
        // With several projects, the event is of no certain one, so its SDK key is empty.
        return GoalEvent(
            userID: userID, goal: Identifier(name),
            value: try EventAmount.first(of: ["value", "revenue"], in: properties, at: place.appending("properties")),
            happenedAt: happenedAt, receivedAt: now, senderID: id.map { Identifier($0) },
            sdkKey: projects.count == 1 ? projects[0].sdkKey : "", payload: payload.finish())
    }

    /// Returns the exposure to the experiment and the variation that the properties name, by ids or keys.
    private func exposure(
        _ properties: JSONObject, of userID: Identifier, _ happenedAt: Instant, at place: JSONPointer
    ) throws(CoreError) -> Exposure {
        func names(_ members: String...) -> [Identifier] {
            members.compactMap { properties[$0]?.string }.map { Identifier($0) }
        }
        let experimentNames = names("experiment_id", "experiment_name")
        let variationNames = names("variation_id", "variation_name", "variant_id", "variant_name")
        for project in projects {
            guard let experiment = experimentNames.lazy.compactMap(project.datafile.experiment(keyOrID:)).first else {
                continue
            }
            let variations = variationNames.lazy.compactMap { name in
                experiment.variation(id: name) ?? experiment.variation(key: name)
            }
            guard let variation = variations.first else { throw Self.unknownVariation(of: experiment, at: place) }
            do throws(EventRefusal) {
                // No profile is needed, because the sender has bucketed the user.
                return try ExposureInput(
                    userID: userID, happenedAt: happenedAt, project: project, experiment: experiment,
                    variation: variation
                ).exposure(nil)
            } catch {
                throw error.error
            }
        }
        throw Self.unknownExperiment(experimentNames, at: place)
    }

    private static func unknownExperiment(_ names: [Identifier], at place: JSONPointer) -> CoreError {
        CoreError(
            .unprocessable,
            "`experiment_id` or `experiment_name` must be an experiment's key or id; got '"
                + names.map(\.string).joined(separator: "', '") + "'", at: place.appending("experiment_id"),
            mayBeStale: true)
    }

    /// Returns the error for an unknown variation, which lists the first variations of the experiment.
    private static func unknownVariation(of experiment: Experiment, at place: JSONPointer) -> CoreError {
        let known = experiment.variations.prefix(maximumListedVariations).map(\.key.string).joined(separator: ", ")
        return CoreError(
            .unprocessable, "`variation_id` or `variation_name` must be one of '\(experiment.key)': \(known)",
            at: place.appending("variation_id"), mayBeStale: true)
    }
}
