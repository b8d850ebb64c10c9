import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /edge/v1/events`: what an edge's clients were exposed to and reached, and which flags they used.
struct EdgeEventsEndpoint {
    let services: Services
    let store: any StoreSession
    let feed: FeedEndpoint

    /// How many lines about erasures and merges are read behind `after`; an edge that lags more reads them itself.
    private static let mostLines = 10_000

    /// Stores all or none of the events; sent again, they are not counted twice. 409 if a user of them was erased or merged
    /// into another behind `after`, so that the edge does not know.
    func post(_ body: [UInt8], _ call: Call) async throws -> Response {
        let object = try JSONInput.parse(body).object("a request", knowing: ["after", "events", "uses"])
        let elements = try object.elements("events", limit: EdgeProtocol.mostElements)
        let uses = object["uses"] == nil ? [] : try object.elements("uses", limit: EdgeProtocol.mostElements)
        let projects = services.projects.snapshot().projects
        var events: [UserEvent] = []
        for (index, element) in elements.enumerated() {
            events.append(try Self.event(element, at: JSONPointer().appending("events").appending(index), projects))
        }
        var lastUses: [LastUse.Subject: LastUse] = [:]
        for (index, element) in uses.enumerated() {
            let use = try Self.use(element, at: JSONPointer().appending("uses").appending(index))
            if use.day >= lastUses[use.subject]?.day ?? use.day { lastUses[use.subject] = use }
        }
        if let text = try object.optionalText("after") {
            try await expectNoRemoval(of: Set(events.map(\.userID)), after: text)
        }
        let outcomes = try await services.reporter.record(events)
        if !lastUses.isEmpty { try await store.write(.note(Array(lastUses.values))) }
        return .json([
            "stored": .integer(Int64(outcomes.count { $0 == .stored })),
            "repeated": .integer(Int64(outcomes.count { $0 == .repeated })),
        ])
    }

    private func expectNoRemoval(of users: Set<Identifier>, after text: String) async throws {
        do {
            let cursor = try await feed.begin(text)
            let end = try await feed.reader.end()
            let batch = try await feed.reader.read(
                after: cursor, upTo: end, kinds: [.erasure, .merge], limit: Self.mostLines)
            var removed: [Identifier] = []
            for line in batch.lines {
                let userID = if case .merge(let other) = line.entry.change { other } else { line.entry.userID }
                if users.contains(userID), !removed.contains(userID) { removed.append(userID) }
            }
            guard !removed.isEmpty || !batch.isUpTo(end) else { return }
            var problem = Problem(
                .conflict,
                "the feed must be followed before events are sent: users of these events were erased or merged; nothing was stored"
            )
            problem.members = [("users", .array(removed.map { .string($0.string) }))]
            throw problem
        } catch let failure as FeedReader.Failure {
            throw FeedEndpoint.problem(failure)
        }
    }

    // MARK: Parsing

    /// The longest id or key, in bytes: what a datafile names may be longer than what clients report.
    private static let longestName = 4_096

    private static func event(
        _ value: JSONValue, at place: JSONPointer, _ projects: [String: Project]
    ) throws(CoreError) -> UserEvent {
        guard let object = value.object else {
            throw CoreError(.invalid, "an event must be an object; got \(value.kind)", at: place)
        }
        func name(_ member: String) throws(CoreError) -> Identifier {
            let text = try object.text(member, in: place)
            guard EventInput.isName(text, limit: longestName) else {
                throw CoreError(
                    .invalid,
                    "`\(member)` must be 1 to \(longestName) bytes long, without NUL; got \(text.utf8.count) bytes",
                    at: place.appending(member))
            }
            return Identifier(text)
        }
        let userID = try ProfileInput.checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
        let happenedAt = try object.time("happened_at", in: place)
        let sdkKey = try object.optionalText("sdk_key", in: place) ?? ""
        let payload = Array(try object.text("payload", in: place).utf8)
        guard try JSONInput.parse(payload).object != nil else {
            throw CoreError(.invalid, "`payload` must be the text of a JSON object", at: place.appending("payload"))
        }
        switch try object.text("kind", in: place) {
        case "exposure":
            var exposure = Exposure(
                userID: userID, experimentID: try name("experiment_id"), experimentKey: try name("experiment_key"),
                variationID: try name("variation_id"), happenedAt: happenedAt,
                isChosen: object["is_chosen"]?.bool ?? false, sdkKey: sdkKey, payload: payload)
            exposure.active = projects[sdkKey]?.allocation(experimentID: exposure.experimentID)
            return .exposure(exposure.enrolling(object["enrolls"]?.bool ?? false, in: projects))
        case "goal":
            guard let value = object["value"]?.double, EventInput.usable(value) == value else {
                throw CoreError(.invalid, "`value` must be a number that can be summed", at: place.appending("value"))
            }
            let goal = try object.text("goal", in: place)
            guard EventInput.isGoal(goal) else {
                throw CoreError(.invalid, "`goal` \(EventInput.goalRule(goal))", at: place.appending("goal"))
            }
            return .goal(
                GoalEvent(
                    userID: userID, goal: Identifier(goal), value: value, happenedAt: happenedAt,
                    receivedAt: try object.time("received_at", in: place), senderID: try name("id"), sdkKey: sdkKey,
                    payload: payload))
        case let kind:
            throw CoreError(
                .invalid,
                "`kind` must be 'exposure' or 'goal'; got '\(kind.shortened(to: CoreError.longestQuote))'",
                at: place.appending("kind"))
        }
    }

    private static func use(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> LastUse {
        let object = try value.object("a use", knowing: ["sdk_key", "kind", "key", "variation", "day"], at: place)
        guard let kind = object["kind"]?.integer.flatMap(LastUse.Kind.init), let day = object["day"]?.integer,
            let sdkKey = object["sdk_key"]?.string, let key = object["key"]?.string,
            let variation = object["variation"]?.string, !(sdkKey + key + variation).utf8.contains(0)
        else {
            throw CoreError(
                .invalid, "a use must have the texts `sdk_key`, `key` and `variation`, a known `kind`, and a `day`",
                at: place)
        }
        return LastUse(
            LastUse.Subject(sdkKey: sdkKey, kind, Identifier(key), variation: Identifier(variation)), day: day)
    }
}

extension JSONObject {
    /// Returns a required member that is a time in milliseconds since 1970.
    fileprivate func time(_ name: String, in place: JSONPointer) throws(CoreError) -> Timestamp {
        guard let time = self[name]?.integer, (0...1 << 48).contains(time) else {
            throw CoreError(
                .invalid, "`\(name)` must be a time in milliseconds since 1970", at: place.appending(name))
        }
        return time
    }
}
