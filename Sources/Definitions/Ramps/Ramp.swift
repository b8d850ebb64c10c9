import Bucketing
package import Chronology
package import JSON

/// The steps in which the traffic of an experiment grows by itself, and what ends that.
package struct Ramp: Sendable, Equatable {
    struct Step: Sendable, Equatable {
        /// A percentage.
        var traffic: Double
        /// How long the step lasts, as it was given.
        var duration: String?
        /// The step ends when this many users are enrolled in the experiment.
        var users: Int?

        /// Whether the ramp ends with the step.
        var isOpen: Bool { duration == nil && users == nil }
    }

    /// What an alarm does.
    package enum AlarmAction: String, Sendable, CaseIterable {
        /// The experiment is paused.
        case pause
        /// The traffic stays.
        case hold
        /// The traffic becomes 0.
        case back
    }

    package enum Status: String, Sendable, CaseIterable {
        /// The step begins once the experiment runs and enrolls.
        case waiting
        case active
        /// The traffic stays, because of an alarm or because the next step is not possible.
        case held
        /// An alarm has paused the experiment, or taken back its traffic.
        case stopped
        /// A person has ended the ramp.
        case ended
        case completed
    }

    /// How far the ramp is.
    package struct State: Sendable, Equatable {
        package var status = Status.waiting
        /// The index of the present step.
        var step = 0
        /// When it began, or ended the ramp.
        package var since: Instant?
        /// When the next step is due; `nil` if that depends on the number of users.
        var dueAt: Instant?
        /// Why the ramp does not go on.
        package var reason: String?
        /// What was known when the state was taken.
        package var evidence: Evidence?
    }

    /// What was known of the users.
    package struct Evidence: Sendable, Equatable {
        /// Enrolled users.
        package var users: Int
        /// The always-valid p-value of the sample ratio; `nil` without users.
        package var sampleRatio: Double?

        package init(users: Int, sampleRatio: Double? = nil) {
            self.users = users
            self.sampleRatio = sampleRatio
        }
    }

    var steps: [Step]
    var alarmAction = AlarmAction.pause
    /// Whether ``AlarmAction/back`` leaves the enrolled users their variation.
    var keepsUsers = true
    package var state = State()

    static let greatestStepCount = 20

    var step: Step { steps[min(state.step, steps.count - 1)] }

    /// Whether the ramp goes on by itself.
    package var isPending: Bool { state.status == .waiting || state.status == .active }

    /// Whether the present step is over.
    func isStepOver(at now: Instant, _ evidence: Evidence?) -> Bool {
        if let dueAt = state.dueAt { return now >= dueAt }
        if let users = step.users { return evidence.map { $0.users >= users } ?? false }
        return true
    }

    /// Returns the ramp in the place of a former one. If that has not ended, and the traffic of its step is that of the
    /// new step, the ramp goes on where it is; otherwise it begins anew. The same ramp stays as it is.
    func replacing(_ former: Ramp?) -> Ramp {
        guard let former else { return self }
        var ramp = self
        ramp.state = former.state
        guard ramp != former else { return former }
        guard former.state.status != .completed, former.state.step < steps.count,
            former.step.traffic == ramp.step.traffic
        else { return self }
        if former.state.status == .active {
            ramp.state.dueAt = former.state.since.flatMap { ramp.step.end(since: $0) }
        } else {
            ramp.end(.waiting, at: nil, nil, nil)
        }
        return ramp
    }

    mutating func begin(_ step: Int, at now: Instant, _ evidence: Evidence?) {
        state = State(status: .active, step: min(step, steps.count - 1), since: now, evidence: evidence)
        state.dueAt = self.step.end(since: now)
        if self.step.isOpen { state.status = .completed }
    }

    /// Leaves the present step.
    mutating func end(_ status: Status, at now: Instant?, _ reason: String?, _ evidence: Evidence?) {
        state = State(
            status: status, step: state.step, since: now, reason: reason, evidence: evidence ?? state.evidence)
    }
}

extension Ramp.Step {
    private static let lengths = TimeSpan.seconds(1)...TimeSpan.days(366)

    /// Parses a text such as `90s`, `30m`, `12h` or `2d`; `nil` for another one.
    static func span(_ text: String) -> TimeSpan? {
        TimeSpan(text).flatMap { lengths.contains($0) ? $0 : nil }
    }

    /// When the step ends; `nil` if it has no duration.
    func end(since start: Instant) -> Instant? {
        duration.flatMap(Self.span).map { start + $0 }
    }
}

// MARK: - JSON

extension Ramp {
    /// Reads a ramp as it is stored and shown; `nil` if it is not one.
    init?(stored object: JSONObject) {
        var faults = FaultCollector()
        self.init(.object(object), at: [], &faults)
        guard faults.faults.isEmpty else { return nil }
        if let state = object["state"]?.object { self.state = State(state, count: steps.count) }
    }

    /// Reads a ramp of a request, without its state.
    init?(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) {
        let known = ["steps", "on_alarm", "keep"]
        guard let object = faults.object(value, "a ramp", knowing: known, ignoring: ["state"], at: place) else {
            return nil
        }
        if object["steps"] == nil { faults.add("`steps` is required", at: place.appending("steps")) }
        let list = faults.list(object, "steps", 1...Self.greatestStepCount, at: place) ?? []
        steps = list.compactMap { Step($0.value, at: $0.place, &faults) }
        if let text = faults.collect(try object.optionalText("on_alarm", in: place)) {
            if let action = AlarmAction(rawValue: text) {
                alarmAction = action
            } else {
                let names = AlarmAction.allCases.map(\.rawValue).joined(separator: ", ")
                faults.add("`on_alarm` must be one of \(names); got '\(text)'", at: place.appending("on_alarm"))
            }
        }
        if let keep = object["keep"], !keep.isNull {
            if keep.bool == nil {
                faults.add("`keep` must be a boolean; got \(keep.kind)", at: place.appending("keep"))
            }
            keepsUsers = keep.bool ?? true
        }
        guard steps.count == list.count, !steps.isEmpty else { return nil }
        checkOrder(at: place.appending("steps"), &faults)
    }

    private func checkOrder(at place: JSONPointer, _ faults: inout FaultCollector) {
        var users = 0
        for (index, step) in steps.enumerated() {
            let place = place.appending(index)
            if index > 0, step.traffic <= steps[index - 1].traffic {
                faults.add(
                    "`traffic` must grow from step to step; got \(step.traffic) after \(steps[index - 1].traffic)",
                    at: place.appending("traffic"))
            }
            if let wanted = step.users {
                if wanted <= users {
                    faults.add(
                        "`users` counts all enrolled users of the experiment, so it must grow from step to step; got "
                            + "\(wanted) after \(users)", at: place.appending("users"))
                }
                users = wanted
            }
            if step.isOpen, index < steps.count - 1 {
                faults.add("a step must have `for` or `users`, except the last; got neither", at: place)
            }
        }
    }

    package var json: JSONValue {
        [
            "steps": .array(steps.map(\.json)), "on_alarm": .string(alarmAction.rawValue), "keep": .bool(keepsUsers),
            "state": state.json(of: self),
        ]
    }
}

extension Ramp.Step {
    fileprivate init?(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) {
        guard let object = faults.object(value, "a step", knowing: ["traffic", "for", "users"], at: place) else {
            return nil
        }
        let traffic = faults.collect(try object.optionalNumber("traffic", 0...100, in: place))
        if traffic == nil, object["traffic"].map(\.isNull) ?? true {
            faults.add("`traffic` is required", at: place.appending("traffic"))
        }
        if let text = faults.collect(try object.optionalText("for", in: place)) {
            if Self.span(text) == nil {
                faults.add(
                    "`for` must be a time from 1s to 366d such as 90s, 30m, 12h or 2d; got '\(text)'",
                    at: place.appending("for"))
            }
            duration = text
        }
        if let value = object["users"], !value.isNull {
            let bounds: ClosedRange<Int64> = 1...1_000_000_000
            if case .integer(let number) = value, bounds.contains(number) {
                users = Int(number)
            } else {
                faults.add(
                    "`users` must be a whole number from 1 to \(bounds.upperBound); got "
                        + (value.double.map { "\($0)" } ?? value.kind), at: place.appending("users"))
            }
        }
        if duration != nil, users != nil {
            faults.add("a step must have either `for` or `users`; got both", at: place)
        }
        guard let traffic else { return nil }
        self.traffic = traffic
    }

    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["traffic"] = .shortest(traffic)
        if let duration { object["for"] = .string(duration) }
        if let users { object["users"] = .integer(Int64(users)) }
        return .object(object)
    }
}

extension Ramp.State {
    fileprivate init(_ object: JSONObject, count: Int) {
        status = object["status"]?.string.flatMap { Ramp.Status(rawValue: $0) } ?? .ended
        if case .integer(let number)? = object["step"] { step = Int(min(max(number, 1), Int64(count))) - 1 }
        since = object.time("since")
        dueAt = object.time("due_at")
        reason = object["reason"]?.string
        if case .integer(let users)? = object["users"] {
            evidence = Ramp.Evidence(
                users: Int(clamping: users), sampleRatio: object["sample_ratio_p_value"]?.double)
        }
    }

    fileprivate func json(of ramp: Ramp) -> JSONValue {
        var object = JSONObject()
        object["status"] = .string(status.rawValue)
        object["step"] = .integer(Int64(step + 1))
        if let since { object["since"] = .string(since.rfc3339) }
        if status == .active { object["due_at"] = dueAt.map { .string($0.rfc3339) } ?? .null }
        if let reason { object["reason"] = .string(reason) }
        if let evidence {
            object["users"] = .integer(Int64(evidence.users))
            object["sample_ratio_p_value"] = evidence.sampleRatio.map { .shortest($0) } ?? .null
        }
        return .object(object)
    }
}
