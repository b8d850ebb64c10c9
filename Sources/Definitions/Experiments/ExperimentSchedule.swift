package import Chronology
package import JSON

/// The times at which the server starts an experiment and closes its enrollment.
package struct ExperimentSchedule: Sendable, Equatable {
    /// When a draft starts to run.
    package var startAt: Instant?
    /// When enrollment closes: enrolled users keep their variation, and nobody else gets one.
    package var endAt: Instant?
    /// When the server started the draft; `nil` if it has not.
    package var startedAt: Instant?
    /// When the server closed enrollment; `nil` if it has not.
    package var endedAt: Instant?

    init() {}

    /// Reads a schedule as it is stored and shown.
    init(_ object: JSONObject) {
        startAt = object.time("start_at")
        endAt = object.time("end_at")
        startedAt = object.time("started_at")
        endedAt = object.time("ended_at")
    }

    /// Reads a schedule of a request. `started_at` and `ended_at` are ignored, because only the server sets them.
    init?(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) {
        guard
            let object = faults.object(
                value, "a schedule", knowing: ["start_at", "end_at"], ignoring: ["started_at", "ended_at"], at: place)
        else { return nil }
        startAt = faults.collect(try object.optionalTime("start_at", in: place))
        endAt = faults.collect(try object.optionalTime("end_at", in: place))
        if let startAt, let endAt, endAt <= startAt {
            faults.add(
                "`end_at` must be later than `start_at`, \(startAt.rfc3339); got \(endAt.rfc3339)",
                at: place.appending("end_at"))
        }
    }

    /// The schedule as it is stored and shown.
    package var json: JSONValue {
        var object = JSONObject()
        object["start_at"] = startAt.map { .string($0.rfc3339) } ?? .null
        object["end_at"] = endAt.map { .string($0.rfc3339) } ?? .null
        if let startedAt { object["started_at"] = .string(startedAt.rfc3339) }
        if let endedAt { object["ended_at"] = .string(endedAt.rfc3339) }
        return .object(object)
    }

    /// Returns the schedule with the state of the schedule that it replaces. If the start time has not changed, a start
    /// that has happened is not repeated. The same holds for the end.
    func replacing(_ former: ExperimentSchedule?) -> ExperimentSchedule {
        var schedule = self
        if let former, former.startAt == startAt { schedule.startedAt = former.startedAt }
        if let former, former.endAt == endAt { schedule.endedAt = former.endedAt }
        return schedule
    }

    /// Whether a start or an end is still to come.
    package var isPending: Bool { startAt != nil && startedAt == nil || endAt != nil && endedAt == nil }
}
