package import Bucketing
package import Chronology
package import JSON

/// Moves the weights of an experiment towards the variations that do best by its first primary metric, at set
/// intervals.
///
/// This is Thompson sampling in batches: the share of new users that a variation gets is its probability of being the
/// best one, but at least ``leastShare``. Enrolled users keep their variation.
///
/// At each interval, ``ProjectDefinitions/timedChange(of:at:_:)`` asks for a ``Look`` at the users, from which
/// ``shares(_:_:)`` computes the new weights.
package struct Bandit: Sendable, Equatable {
    /// The time between two interim looks, as it was given.
    var interval = "1d"
    /// The minimum percentage of new users for each variation. It bounds how much one user weighs in results.
    var leastShare = 5.0
    /// The minimum number of users in each variation before the weights change.
    package var leastUsers = 100
    /// Whether SDKs ask this server for each new decision (a contextual bandit); `nil` if a request does not say. Once
    /// applied, ``ExperimentDefinition/gate`` says it.
    package var predicts: Bool?
    package var state = State()

    /// The last look at the users, and when the next one is due.
    package struct State: Sendable, Equatable {
        /// When the last look was; `nil` if there was none.
        package var lookedAt: Instant?
        /// When the next look is due; `nil` for immediately.
        var dueAt: Instant?
        package var look = Look()
    }

    /// The result of an interim look at the users.
    package struct Look: Sendable, Equatable {
        /// The number of users who were compared.
        package var users = 0
        /// Why the weights stay, for example too few users; `nil` if they may change.
        package var reason: String?
        /// The probability of being the best variation, by the id of the variation.
        package var chances: [Identifier: Double] = [:]

        package init() {}
    }

    /// The number of variations that a bandit may have.
    package static let variationCounts = 2...20
    /// The minimum of ``interval``.
    private static let shortestInterval = TimeSpan.minutes(1)
    /// The values that ``leastShare`` may have.
    private static let leastShares = 1.0...50.0
    /// The values that ``leastUsers`` may have.
    private static let leastUserCounts = 10.0...1_000_000.0
    /// The minimum change of a share, in percentage points. If all shares change less, the weights stay, because
    /// results are computed for each period of equal weights.
    private static let leastChange = 0.5

    /// Whether the next look is due.
    package func isDue(at now: Instant) -> Bool { state.dueAt.map { now >= $0 } ?? true }

    /// Keeps a look as the last one, and schedules the next.
    package mutating func note(_ look: Look, at now: Instant) {
        let next = Ramp.Step.span(interval).map { now + $0 }
        state = State(lookedAt: now, dueAt: next, look: look)
    }

    /// Returns the percentage of new users for each variation, in the order of the variations; `nil` if the shares
    /// stay.
    ///
    /// - Parameter variations: the variations with their shares so far, in percent.
    package func shares(_ look: Look, _ variations: [(id: Identifier, share: Double)]) -> [Double]? {
        guard look.reason == nil else { return nil }
        // What is left once each variation has the least share is divided by the probabilities, which add up to 1.
        let rest = 1 - leastShare / 100 * Double(variations.count)
        let shares = variations.map { leastShare + rest * 100 * (look.chances[$0.id] ?? 0) }
        let isChanged = zip(shares, variations).contains { abs($0 - $1.share) >= Self.leastChange }
        return isChanged ? shares : nil
    }

    /// Returns the bandit with the state of the one that it replaces. If the interval has changed, the next look is due
    /// one new interval after the last look.
    func replacing(_ former: Bandit?) -> Bandit {
        var bandit = self
        bandit.predicts = nil
        guard let former else { return bandit }
        bandit.state = former.state
        if former.interval != interval {
            bandit.state.dueAt = former.state.lookedAt.flatMap { time in
                Ramp.Step.span(interval).map { time + $0 }
            }
        }
        return bandit
    }
}

extension ExperimentDefinition {
    /// Checks that the experiment suits its bandit, if it has one.
    ///
    /// - Throws: 422 if the experiment has no suitable primary metric, if it has too few or too many variations for the
    ///   bandit, or if it also has a ramp that goes on.
    func checkBandit(_ metrics: DefinitionList<MetricDefinition>) throws(CoreError) {
        guard let bandit = details.bandit else { return }
        var faults = FaultCollector()
        guard let key = details.metrics.primary.first, let metric = metrics[key] else {
            throw CoreError(
                .unprocessable, "a bandit needs a primary metric to learn from; set `metrics`", at: ["bandit"])
        }
        if metric.statistic == .ratio {
            faults.add(
                "a bandit's first primary metric must be one of each user, such as a conversion, a count or a total; "
                    + "'\(key)' is a \(metric.kind.rawValue)", at: ["bandit"])
        }
        if !Bandit.variationCounts.contains(variations.count) {
            let counts = Bandit.variationCounts
            faults.add(
                "a bandit needs \(counts.lowerBound) to \(counts.upperBound) variations; got \(variations.count)",
                at: ["bandit"])
        } else if bandit.leastShare * Double(variations.count) > 100 {
            faults.add(
                "`minimum_share` of \(variations.count) variations must be at most \(100 / variations.count); got "
                    + "\(bandit.leastShare)", at: ["bandit", "minimum_share"])
        }
        if details.ramp?.isPending ?? false {
            faults.add("an experiment must have either a ramp that goes on or a bandit; got both", at: ["bandit"])
        }
        try faults.check()
    }
}

// MARK: - JSON

extension Bandit {
    private static let members = ["every", "minimum_share", "minimum_users", "predict"]

    /// Reads a stored bandit with its state; `nil` if the object is no valid bandit.
    init?(stored object: JSONObject) {
        var faults = FaultCollector()
        self.init(.object(object), at: [], &faults)
        guard faults.faults.isEmpty else { return nil }
        guard let stored = object["state"]?.object else { return }
        state.lookedAt = stored.time("looked_at")
        state.dueAt = stored.time("due_at")
        state.look = Look(stored)
    }

    /// Reads a bandit of a request. Its state is ignored, because only the server sets it.
    init?(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) {
        guard let object = faults.object(value, "a bandit", knowing: Self.members, ignoring: ["state"], at: place)
        else { return nil }
        if let text = faults.collect(try object.optionalText("every", in: place)) {
            if Ramp.Step.span(text).map({ $0 < Self.shortestInterval }) ?? true {
                faults.add(
                    "`every` must be a time from 1m to 366d such as 30m, 12h or 1d; got '\(text)'",
                    at: place.appending("every"))
            }
            interval = text
        }
        leastShare =
            faults.collect(try object.optionalNumber("minimum_share", Self.leastShares, in: place)) ?? leastShare
        let users = faults.collect(try object.optionalNumber("minimum_users", Self.leastUserCounts, in: place))
        if let users {
            leastUsers = Int(users)
            if Double(leastUsers) != users {
                faults.add(
                    "`minimum_users` must be a whole number; got \(users)", at: place.appending("minimum_users"))
            }
        }
        if let value = object["predict"], !value.isNull {
            predicts = value.bool
            if predicts == nil {
                faults.add("`predict` must be a boolean; got \(value.kind)", at: place.appending("predict"))
            }
        }
    }

    /// The bandit as it is stored, with its state.
    var json: JSONValue {
        var object = settings
        object["state"] = .object(state.stored)
        return .object(object)
    }

    /// The bandit in a file of definitions.
    package var definition: JSONValue {
        var object = settings
        object["predict"] = .bool(predicts ?? false)
        return .object(object)
    }

    /// Returns the member `bandit` of a response.
    package func description(of experiment: ExperimentDefinition) -> JSONValue {
        var object = settings
        object["predict"] = .bool(experiment.gate != nil)
        object["state"] = .object(shownState(experiment.variations.map { ($0.id, $0.key) }))
        return .object(object)
    }

    /// Returns the state as it is shown: chances with the keys of the variations instead of their ids.
    package func shownState(_ variations: [(id: Identifier, key: Identifier)]) -> JSONObject {
        var shown = state.json
        shown["variations"] = .array(
            variations.compactMap { variation in
                state.look.chances[variation.id].map {
                    ["key": JSONValue(variation.key), "chance_to_be_best": .shortest($0)]
                }
            })
        return shown
    }

    /// The members that a request sets, without `predict`.
    private var settings: JSONObject {
        var object = JSONObject()
        object["every"] = .string(interval)
        object["minimum_share"] = .shortest(leastShare)
        object["minimum_users"] = .integer(Int64(leastUsers))
        return object
    }
}

extension Bandit.Look {
    /// Reads a look from the stored state of a bandit.
    package init(_ stored: JSONObject) {
        users = stored["users"]?.integer.map { Int(clamping: $0) } ?? 0
        reason = stored["reason"]?.string
        for member in stored["chances"]?.object ?? JSONObject() {
            chances[Identifier(member.key)] = member.value.double
        }
    }
}

extension Bandit.State {
    /// The state as it is stored: chances by the ids of the variations.
    package var stored: JSONObject {
        var chances = JSONObject()
        for (id, chance) in look.chances.sorted(by: { $0.key < $1.key }) { chances[id.string] = .shortest(chance) }
        var stored = json
        stored["chances"] = .object(chances)
        return stored
    }

    /// The state without the chances.
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object["looked_at"] = lookedAt.map { .string($0.rfc3339) } ?? .null
        object["due_at"] = dueAt.map { .string($0.rfc3339) } ?? .null
        object["users"] = .integer(Int64(look.users))
        object["reason"] = look.reason.map { .string($0) } ?? .null
        return object
    }
}
