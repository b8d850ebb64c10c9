import Bucketing
import Chronology
package import JSON

// A ramp in requests, responses, files and the store:
//
// `{"steps":[{"traffic":5,"for":"1d"},{"traffic":50,"users":10000},{"traffic":100}],"on_alarm":"pause","keep":true}`
//
// Responses and the store also have its `state`, which requests may repeat.

extension Ramp {
    /// Reads a stored ramp with its state; `nil` if the object is no valid ramp.
    init?(stored object: JSONObject) {
        var faults = FaultCollector()
        self.init(.object(object), at: [], &faults)
        guard faults.faults.isEmpty else { return nil }
        if let state = object["state"]?.object { self.state = State(state, count: steps.count) }
    }

    /// Reads a ramp of a request. Its state is ignored, because only the server sets it.
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

    /// Checks that traffic and users grow from step to step, and that each step but the last has an end.
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

    /// The ramp as it is stored and shown, with its state.
    package var json: JSONValue {
        [
            "steps": .array(steps.map(\.json)), "on_alarm": .string(alarmAction.rawValue), "keep": .bool(keepsUsers),
            "state": state.json(of: self),
        ]
    }
}

extension Ramp.Step {
    private static let userCounts: ClosedRange<Int64> = 1...1_000_000_000

    /// Reads a step of a request or of the store.
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
            let bounds = Self.userCounts
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
    /// Reads a stored state. In JSON the first step has the number 1.
    ///
    /// - Parameter count: the number of steps of the ramp.
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
