public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// The body of a request that moves a running experiment from another system to this server:
/// `{"started_at","shares","exposures"?,"events"?}`.
///
/// The other system has split the imported users by its own shares, so the users belong to an allocation period of
/// their own, ``period``. ``SampleRatioCheck`` compares them with the shares of this period.
public struct ExperimentImport: Sendable {
    /// The allocation period of the import: from the start in the other system, with the shares in that system.
    public let period: AllocationPeriod
    /// The exposures to record. Each enrolls its user in ``period``.
    public let exposures: [Exposure]
    /// The goal events to record. They may be from before the start in the other system.
    public let events: [GoalEvent]
    /// The shares as the client sent them, for the audit entry.
    private let shares: JSONValue

    private static let exposureMembers = ["user_id", "variation_id", "variation_key", "timestamp"]
    private static let eventMembers = ["id", "user_id", "goal", "value", "timestamp", "tags"]

    /// Parses the body.
    ///
    /// - Parameter limit: the maximum number of exposures, and of events.
    /// - Throws: 400 or 422 for the first wrong member, 409 if nothing can be imported into the experiment.
    public init(
        _ body: JSONValue, into experiment: Experiment, of project: Project, limit: Int, now: Instant
    ) throws(CoreError) {
        try Self.check(experiment, of: project)
        let object = try body.object("an import", knowing: ["started_at", "shares", "exposures", "events"])
        let startedAt = try Self.startedAt(object, now: now)
        shares = object["shares"] ?? .null
        period = AllocationPeriod(
            number: AllocationPeriod.imported, sdkKey: project.sdkKey, since: startedAt,
            allocation: try Self.allocation(shares, of: experiment))
        var exposures: [Exposure] = []
        for (index, element) in try Self.elements("exposures", of: object, limit: limit).enumerated() {
            let input = try EventInput(
                element, knowing: Self.exposureMembers, at: JSONPointer().appending("exposures").appending(index),
                sdkKey: project.sdkKey, importedSince: startedAt, now: now)
            exposures.append(try Self.exposure(input, in: period, of: experiment, project))
        }
        self.exposures = exposures
        var events: [GoalEvent] = []
        for (index, element) in try Self.elements("events", of: object, limit: limit).enumerated() {
            // Metrics also use events from before the first exposure, which may be before the start.
            let input = try EventInput(
                element, knowing: Self.eventMembers, at: JSONPointer().appending("events").appending(index),
                sdkKey: project.sdkKey, importedSince: startedAt - EventRules.longestLookBack, now: now)
            events.append(try Self.goalEvent(input))
        }
        self.events = events
    }

    /// Returns the audit entry of the import.
    public func note(_ key: Identifier) -> AuditNote {
        AuditNote(
            .experimentImport, of: key.string,
            after: [
                "started_at": .string(period.since.rfc3339), "shares": shares,
                "exposures": .integer(Int64(exposures.count)), "events": .integer(Int64(events.count)),
            ], in: period.sdkKey)
    }

    /// Checks that an experiment can take an import. Results of an experiment that is over are frozen, and a bandit
    /// weights users by probabilities that imported users did not have.
    ///
    /// - Throws: 409 if nothing can be imported into the experiment.
    private static func check(_ experiment: Experiment, of project: Project) throws(CoreError) {
        guard !experiment.isConcluded, !experiment.isArchived else {
            throw CoreError(
                .conflict,
                "an experiment must not be over to take an import; '\(experiment.key)' is "
                    + ExperimentStatus.name(of: experiment.status))
        }
        guard project.definitions.experiments[experiment.key]?.details.bandit == nil else {
            throw CoreError(
                .conflict,
                "an experiment with a bandit takes no import, because it weights users by the probabilities of their "
                    + "time")
        }
    }

    /// Returns the time when the experiment started in the other system.
    ///
    /// - Throws: 400 if it is absent; 422 if it is in the future.
    private static func startedAt(_ object: JSONObject, now: Instant) throws(CoreError) -> Instant {
        guard let startedAt = try object.optionalTime("started_at") else {
            throw CoreError(
                .invalid, "`started_at` is required: when the experiment began elsewhere", at: ["started_at"])
        }
        guard startedAt <= now else {
            throw CoreError(
                .unprocessable, "`started_at` must not be in the future; got '\(startedAt.rfc3339)'", at: ["started_at"]
            )
        }
        return startedAt
    }

    /// Returns the goal event of an element.
    ///
    /// - Throws: 400 or 422 if a member is wrong; 422 if there is no `id`.
    private static func goalEvent(_ input: EventInput) throws(CoreError) -> GoalEvent {
        let event = try GoalEvent(input)
        guard event.senderID != nil else {
            throw CoreError(
                .unprocessable, "`id` is required in an import, so that no event counts twice",
                at: input.place.appending("id"))
        }
        return event
    }

    /// Returns the elements of an array; none if the array is absent or null.
    private static func elements(
        _ name: String, of object: JSONObject, limit: Int
    ) throws(CoreError) -> [JSONValue] {
        guard let value = object[name], !value.isNull else { return [] }
        guard let elements = value.array, elements.count <= limit else {
            throw CoreError(
                .invalid,
                "`\(name)` must be an array of at most \(limit) elements; got "
                    + (value.array.map { "\($0.count)" } ?? value.kind), at: [name])
        }
        return elements
    }

    /// Returns the allocation in the other system.
    ///
    /// - Parameter shares: relative numbers by the keys of variations.
    /// - Throws: 400 or 422 if the shares are wrong or incomplete.
    private static func allocation(
        _ shares: JSONValue, of experiment: Experiment
    ) throws(CoreError) -> TrafficAllocation {
        let place: JSONPointer = ["shares"]
        let ratio = try ratio(shares, of: experiment, at: place)
        // A forgotten share would make the sample ratio wrong, and an import cannot be taken back.
        if let missing = experiment.variations.first(where: { ratio[$0.id] == nil }) {
            throw CoreError(
                .unprocessable,
                "`shares` must have each variation of the experiment, with 0 for one that nobody got; "
                    + "'\(missing.key)' is missing", at: place)
        }
        guard ratio.values.contains(where: { $0 > 0 }) else {
            throw CoreError(.unprocessable, "`shares` must have at least one number above 0; got none", at: place)
        }
        let ids = experiment.variations.map(\.id)
        let weights = TrafficAllocation.weights(of: ids, ratio: ids.map { ratio[$0] ?? 0 }, traffic: 100)
        return TrafficAllocation(weights: weights)
    }

    /// Returns the shares in the other system by the ids of variations.
    ///
    /// - Throws: 400 if the shares are not an object; 422 for an unknown variation, or a share out of range.
    private static func ratio(
        _ shares: JSONValue, of experiment: Experiment, at place: JSONPointer
    ) throws(CoreError) -> [Identifier: Double] {
        guard let object = shares.object else {
            throw CoreError(
                .invalid,
                "`shares` must be an object with the share of each variation, such as {\"control\":50,\"new\":50}; got "
                    + (shares.isNull ? "none" : shares.kind), at: place)
        }
        var ratio: [Identifier: Double] = [:]
        for member in object {
            guard let variation = experiment.variation(key: Identifier(member.key)) else {
                let list = experiment.variations.map(\.key.string).joined(separator: ", ")
                throw CoreError(
                    .unprocessable,
                    "`shares` must have keys of the experiment's variations (\(list)); got "
                        + "'\(member.key.shortened(to: CoreError.longestQuote))'", at: place.appending(member.key),
                    mayBeStale: true)
            }
            guard let share = member.value.double, (0...1e6).contains(share) else {
                throw CoreError(
                    .unprocessable,
                    "a share must be a number from 0 to 1000000; got "
                        + (member.value.double.map { "\($0)" } ?? member.value.kind), at: place.appending(member.key))
            }
            ratio[variation.id] = share
        }
        return ratio
    }

    /// Returns the exposure of an element. It enrolls its user in the imported period.
    private static func exposure(
        _ input: EventInput, in period: AllocationPeriod, of experiment: Experiment, _ project: Project
    ) throws(CoreError) -> Exposure {
        guard let variation = try ExposureInput.variation(input, of: experiment) else {
            throw CoreError(
                .invalid, "`variation_key` or `variation_id` is required", at: input.place.appending("variation_key"))
        }
        let exposed = ExposureInput(
            userID: try input.userID(), happenedAt: try input.happenedAt(), project: project, experiment: experiment,
            variation: variation)
        do throws(EventRefusal) {
            var exposure = try exposed.exposure(nil)
            exposure.active = period
            return exposure.enrolling(true, in: [project.sdkKey: project])
        } catch {
            throw error.error
        }
    }
}
