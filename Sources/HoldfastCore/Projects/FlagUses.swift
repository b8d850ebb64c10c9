public import Bucketing
import Chronology
public import JSON
public import Storage

/// The days on which the flags of a project and their variations were last used, for the descriptions of flags and for
/// the list of flags that are no longer used. ``UseRecorder`` records the days.
public struct FlagUses: Sendable {
    private struct Subject: Hashable {
        let kind: LastUse.Kind
        let key: Identifier
    }

    /// The last day of each variation, as a number of days since 1970-01-01.
    private var days: [Subject: [Identifier: Int64]] = [:]

    public init(_ uses: [LastUse]) {
        for use in uses {
            let subject = Subject(kind: use.subject.kind, key: use.subject.key)
            let lastDay = days[subject]?[use.subject.variation] ?? use.day
            days[subject, default: [:]][use.subject.variation] = max(lastDay, use.day)
        }
    }

    /// Whether a flag existed on a day, and since then was neither evaluated nor exposed any user.
    ///
    /// - Parameter day: the number of days since 1970-01-01.
    /// - Returns: also false for a flag whose existence is not recorded yet, because its use is unknown.
    public func isStale(_ flag: Flag, since day: Int64) -> Bool {
        let firstRecorded = days[Subject(kind: .known, key: flag.key)]?.values.max()
        let lastEvaluated = lastDay(ofEvaluating: flag, variation: nil)
        let lastExposed = lastDay(ofExposuresTo: flag, variation: nil)
        let last = [firstRecorded, lastEvaluated, lastExposed].compactMap(\.self).max()
        return last.map { $0 <= day } ?? false
    }

    /// Adds `last_evaluated_on` and `last_exposed_on` to a flag's description and to each of its variations. The
    /// members are null if no use is recorded.
    public func describe(_ flag: Flag, _ description: JSONValue) -> JSONValue {
        guard var object = description.object else { return description }
        addDays(to: &object, flag, variation: nil)
        object["variations"] = (object["variations"]?.array).map { variations in
            .array(
                variations.map { variation in
                    guard var member = variation.object, let key = member["key"]?.string else { return variation }
                    addDays(to: &member, flag, variation: Identifier(key))
                    return .object(member)
                })
        }
        return .object(object)
    }

    private func addDays(to object: inout JSONObject, _ flag: Flag, variation: Identifier?) {
        object["last_evaluated_on"] = Self.date(lastDay(ofEvaluating: flag, variation: variation))
        object["last_exposed_on"] = Self.date(lastDay(ofExposuresTo: flag, variation: variation))
    }

    /// Returns the last day on which a flag was evaluated; `nil` if none is recorded.
    ///
    /// - Parameter variation: the key of the variation that the evaluation returned; `nil` for any.
    private func lastDay(ofEvaluating flag: Flag, variation: Identifier?) -> Int64? {
        let days = days[Subject(kind: .evaluated, key: flag.key)] ?? [:]
        return variation.map { days[$0] } ?? days.values.max()
    }

    /// Returns the last day of an exposure to an experiment of a flag; `nil` if none is recorded.
    ///
    /// - Parameter variation: the key of the variation that the user was exposed to; `nil` for any.
    private func lastDay(ofExposuresTo flag: Flag, variation: Identifier?) -> Int64? {
        flag.experiments.compactMap { experiment in
            // Exposures are recorded by the id of the variation.
            let days = days[Subject(kind: .exposed, key: experiment.id)] ?? [:]
            guard let variation else { return days.values.max() }
            return experiment.variations.first { $0.key == variation }.flatMap { days[$0.id] }
        }.max()
    }

    private static func date(_ day: Int64?) -> JSONValue {
        day.map { .string(Instant(day: $0).date) } ?? .null
    }
}
