import Bucketing
import Chronology
import Definitions
import HoldfastCore
import JSON
import Storage

/// A batch of events from an edge's outbox. Each element has the number of its `entry` in the outbox, so that an
/// invalid element can be refused without affecting the others.
///
/// ``EdgeEventsEndpoint`` processes a batch in four steps:
///
/// 1. It adds the elements of the request (``addEvent(_:at:)``, ``addUse(_:at:)``).
/// 2. It drops the events of users who were erased after the edge had accepted the events, and moves the events of
///    users who were merged into an account (``apply(_:)``).
/// 3. It adds the variation to exposures without one (``resolve(_:with:)``).
/// 4. It stores ``events`` and ``uses``, and responds with ``response(_:)``.
struct EdgeEventBatch {
    /// An exposure without a variation, because the edge did not know the user's.
    struct Unresolved {
        let entry: Int64?
        var exposure: Exposure
    }

    /// An event, and the number of its entry in the outbox.
    private struct Element {
        let entry: Int64?
        var event: UserEvent
    }

    /// An element that the edge must not send again.
    private struct Refusal {
        let entry: Int64
        let reason: String
        /// Whether the reason is that the user has no variation.
        let isUnassigned: Bool
    }

    let projects: [String: Project]
    let now: Instant
    private var elements: [Element] = []
    private(set) var unresolved: [Unresolved] = []
    /// The number of events that are dropped, because their users were erased after the edge had accepted the events.
    private(set) var erased = 0
    private var lastUses: [LastUse.Subject: LastUse] = [:]
    /// The entries of uses and of dropped events, which the edge may delete. ``response(_:)`` adds those of stored
    /// events.
    private var taken: [Int64] = []
    private var refused: [Refusal] = []

    init(projects: [String: Project], now: Instant) {
        self.projects = projects
        self.now = now
    }

    /// The events to store.
    var events: [UserEvent] { elements.map(\.event) }
    /// The users of all events, each once.
    var users: [Identifier] { Array(Set(elements.map(\.event.userID) + unresolved.map(\.exposure.userID))) }
    /// The last use of each subject.
    var uses: [LastUse] { Array(lastUses.values) }

    // MARK: Elements

    /// Adds an element of `events`, or refuses it.
    ///
    /// - Throws: 400 for an invalid element without an `entry` by which it could be refused.
    mutating func addEvent(_ value: JSONValue, at place: JSONPointer) throws(CoreError) {
        guard let object = value.object else {
            throw CoreError(.invalid, "an event must be an object; got \(value.kind)", at: place)
        }
        let entry = object["entry"]?.integer
        do throws(CoreError) {
            let event = try event(object, at: place)
            if object["accepted_at"] != nil, let acceptedAt = event.acceptedAt,
                acceptedAt < now - ErasureRules.memoryForEdges
            {
                throw CoreError(
                    .invalid,
                    "an event must reach the upstream within 8 days after an edge has accepted it, because erasures are remembered as long; it was accepted at \(acceptedAt.rfc3339)",
                    at: place)
            }
            if case .exposure(let exposure) = event, exposure.variationID.string.isEmpty {
                unresolved.append(Unresolved(entry: entry, exposure: exposure))
            } else {
                elements.append(Element(entry: entry, event: event))
            }
        } catch {
            guard let entry else { throw error }
            refuse(entry, "\(error)")
        }
    }

    /// Adds an element of `uses`, or refuses it. If a subject has several uses, the latest day counts.
    ///
    /// - Throws: 400 for an invalid element without an `entry` by which it could be refused.
    mutating func addUse(_ value: JSONValue, at place: JSONPointer) throws(CoreError) {
        let entry = value.object?["entry"]?.integer
        do throws(CoreError) {
            let use = try Self.use(value, at: place)
            let isLater = lastUses[use.subject].map { use.day >= $0.day } ?? true
            if isLater { lastUses[use.subject] = use }
            if let entry { taken.append(entry) }
        } catch {
            guard let entry else { throw error }
            refuse(entry, "\(error)")
        }
    }

    /// Refuses an element, so that the edge does not send it again. An element without an entry cannot be refused: the
    /// response names elements by their entries.
    mutating func refuse(_ entry: Int64?, _ reason: String, isUnassigned: Bool = false) {
        if let entry { refused.append(Refusal(entry: entry, reason: reason, isUnassigned: isUnassigned)) }
    }

    // MARK: Removed users

    /// Applies the removals of users to their events. An event that the edge accepted before its user was erased is
    /// dropped. An event that the edge accepted before its user was merged into an account becomes one of the account.
    mutating func apply(_ removals: [RemovedUser]) {
        guard !removals.isEmpty else { return }
        let removalsByUser = Dictionary(grouping: removals, by: \.userHash)
        /// Returns the event, moved to the account if its user was merged; `nil` if the event is dropped.
        func kept(_ event: UserEvent) -> UserEvent? {
            guard let acceptedAt = event.acceptedAt,
                let removalsOfUser = removalsByUser[ErasureRules.hash(event.userID)],
                let removal = RemovedUser.first(since: acceptedAt, of: removalsOfUser)
            else { return event }
            return removal.account.map(event.moved)
        }
        var dropped: [Int64?] = []
        elements = elements.compactMap { element in
            guard let event = kept(element.event) else {
                dropped.append(element.entry)
                return nil
            }
            return Element(entry: element.entry, event: event)
        }
        unresolved = unresolved.compactMap { element in
            guard case .exposure(let exposure)? = kept(.exposure(element.exposure)) else {
                dropped.append(element.entry)
                return nil
            }
            return Unresolved(entry: element.entry, exposure: exposure)
        }
        erased += dropped.count
        taken += dropped.compactMap { $0 }
    }

    // MARK: Unresolved exposures

    /// Adds an exposure with the current variation of the user. Refuses the exposure if the user has none.
    ///
    /// - Parameter profile: the profile of the user; `nil` if there is none.
    mutating func resolve(_ element: Unresolved, with profile: ProfileRecord?) {
        let exposure = element.exposure
        guard let project = projects[exposure.sdkKey],
            let experiment = project.datafile.experiment(id: exposure.experimentID)
        else { return refuse(element.entry, "no experiment has the id '\(exposure.experimentID)'", isUnassigned: true) }
        let input = ExposureInput(
            userID: exposure.userID, happenedAt: exposure.happenedAt, project: project, experiment: experiment,
            variation: nil)
        do throws(EventRefusal) {
            var resolved = try input.exposure(profile)
            resolved.acceptedAt = exposure.acceptedAt
            elements.append(Element(entry: element.entry, event: .exposure(resolved)))
        } catch {
            refuse(element.entry, "to '\(experiment.key)': \(error.error.detail)", isUnassigned: true)
        }
    }

    // MARK: The response

    /// Returns the body of the response: the numbers of events, and the entries that are taken and refused.
    ///
    /// - Parameter outcomes: the outcomes of ``events``, in order. Events whose users were removed meanwhile are
    ///   neither taken nor refused, so that the edge sends them again.
    func response(_ outcomes: [EventOutcome]) -> JSONValue {
        let takenEvents: [Int64] = zip(elements, outcomes).compactMap { element, outcome in
            outcome == .removed ? nil : element.entry
        }
        let taken = taken + takenEvents
        return [
            "stored": .integer(Int64(outcomes.count { $0 == .stored || $0 == .notRunning })),
            "repeated": .integer(Int64(outcomes.count { $0 == .repeated })),
            "erased": .integer(Int64(erased)),
            "taken": .array(taken.map { .integer($0) }),
            "refused": .array(
                refused.map { refusal in
                    [
                        "entry": .integer(refusal.entry), "reason": .string(refusal.reason.shortened(to: 1_024)),
                        "unassigned": .bool(refusal.isUnassigned),
                    ]
                }),
        ]
    }

    // MARK: Parsing

    /// Parses an exposure or a goal event.
    ///
    /// - Returns: the event; an exposure has an empty variation if the edge knows none.
    private func event(_ object: JSONObject, at place: JSONPointer) throws(CoreError) -> UserEvent {
        let members = try EventMembers(object, at: place, now: now)
        let userID = try ProfileInput.checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
        let happenedAt = try members.time("happened_at")
        // Edges of earlier releases do not send `accepted_at`.
        let acceptedAt = object["accepted_at"] == nil ? happenedAt : try members.time("accepted_at")
        let sdkKey = try object.optionalText("sdk_key", in: place) ?? ""
        let payload = Array(try object.text("payload", in: place).utf8)
        guard try JSONInput.parse(payload).object != nil else {
            throw CoreError(.invalid, "`payload` must be the text of a JSON object", at: place.appending("payload"))
        }
        switch try object.text("kind", in: place) {
        case "exposure":
            var exposure = Exposure(
                userID: userID, experimentID: try members.name("experiment_id"),
                experimentKey: try members.name("experiment_key"),
                variationID: object["variation_id"] == nil ? Identifier("") : try members.name("variation_id"),
                happenedAt: happenedAt, isChosen: object["is_chosen"]?.bool ?? false, sdkKey: sdkKey, payload: payload)
            exposure.acceptedAt = acceptedAt
            exposure.active = projects[sdkKey]?.allocation(experimentID: exposure.experimentID)
            return .exposure(exposure.enrolling(object["enrolls"]?.bool ?? false, in: projects))
        case "goal":
            let (goal, value) = try Self.goal(object, at: place)
            var event = GoalEvent(
                userID: userID, goal: goal, value: value, happenedAt: happenedAt,
                receivedAt: try members.time("received_at"), senderID: try members.name("id"), sdkKey: sdkKey,
                payload: payload)
            // Edges of earlier releases send at least the time at which they received a goal.
            event.acceptedAt = object["accepted_at"] == nil ? event.receivedAt : acceptedAt
            return .goal(event)
        case let kind:
            throw CoreError(
                .invalid,
                "`kind` must be 'exposure' or 'goal'; got '\(kind.shortened(to: CoreError.longestQuote))'",
                at: place.appending("kind"))
        }
    }

    /// Parses the name and the value of a goal.
    private static func goal(
        _ object: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> (goal: Identifier, value: Double) {
        guard let value = object["value"]?.double, EventRules.isUsable(value: value) else {
            throw CoreError(.invalid, "`value` must be a number that can be summed", at: place.appending("value"))
        }
        let goal = try object.text("goal", in: place)
        guard EventInput.isGoal(goal) else {
            throw CoreError(.invalid, "`goal` \(EventInput.goalRule(goal))", at: place.appending("goal"))
        }
        return (Identifier(goal), value)
    }

    /// Parses the last use of a flag or a variation.
    private static func use(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> LastUse {
        let object = try value.object(
            "a use", knowing: ["entry", "sdk_key", "kind", "key", "variation", "day"], at: place)
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

/// Reads the times, ids and keys of an event.
private struct EventMembers {
    private let object: JSONObject
    private let place: JSONPointer
    private let now: Instant
    /// The number of milliseconds by which the edge's clock is ahead of this server's. All times of the event are times
    /// of the edge's clock.
    private let lead: Int64

    /// The maximum length of an id or key in bytes. It is greater than the limit for clients, because ids and keys in
    /// datafiles may be longer.
    private static let longestName = 4_096
    /// The maximum of a time in milliseconds since 1970, about the year 10889, and of the lead of a clock. Within this
    /// limit the correction of a time cannot overflow.
    private static let maximumMilliseconds: Int64 = 1 << 48

    init(_ object: JSONObject, at place: JSONPointer, now: Instant) throws(CoreError) {
        self.object = object
        self.place = place
        self.now = now
        lead = object["lead"]?.integer ?? 0
        guard (-Self.maximumMilliseconds...Self.maximumMilliseconds).contains(lead) else {
            throw CoreError(.invalid, "`lead` must be a number of milliseconds", at: place.appending("lead"))
        }
    }

    /// Returns a required member that is a time in milliseconds since 1970, corrected by the lead of the edge's clock.
    /// The time is never in the future.
    func time(_ name: String) throws(CoreError) -> Instant {
        guard let time = object[name]?.integer, (0...Self.maximumMilliseconds).contains(time) else {
            throw CoreError(
                .invalid, "`\(name)` must be a time in milliseconds since 1970", at: place.appending(name))
        }
        return min(Instant(milliseconds: time) - .milliseconds(lead), now)
    }

    /// Returns a required member that is an id or a key.
    func name(_ member: String) throws(CoreError) -> Identifier {
        let text = try object.text(member, in: place)
        guard EventInput.isName(text, limit: Self.longestName) else {
            throw CoreError(
                .invalid,
                "`\(member)` must be 1 to \(Self.longestName) bytes long, without NUL; got \(text.utf8.count) bytes",
                at: place.appending(member))
        }
        return Identifier(text)
    }
}
