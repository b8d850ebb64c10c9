public import Bucketing
import Chronology
public import JSON
public import Storage

/// When the flags of a project were last used.
public struct FlagUses: Sendable {
    private struct Subject: Hashable {
        let kind: LastUse.Kind
        let key: Identifier
    }

    /// The last day of each variation.
    private var days: [Subject: [Identifier: Int64]] = [:]

    public init(_ uses: [LastUse]) {
        for use in uses {
            let subject = Subject(kind: use.subject.kind, key: use.subject.key)
            let known = days[subject]?[use.subject.variation]
            days[subject, default: [:]][use.subject.variation] = known.map { max($0, use.day) } ?? use.day
        }
    }

    /// Whether a flag has neither been evaluated nor exposed anybody since a day, and is not newer.
    public func isStale(_ flag: Flag, since day: Int64) -> Bool {
        let known = days[Subject(kind: .known, key: flag.key)]?.values.max()
        let last = [known, evaluated(flag, nil), exposed(flag, nil)].compactMap(\.self).max()
        // Of a flag that nobody has noted yet nothing is known.
        return last.map { $0 <= day } ?? false
    }

    /// Adds the days to a flag's description and to its variations.
    public func describe(_ flag: Flag, _ description: JSONValue) -> JSONValue {
        guard var object = description.object else { return description }
        object["last_evaluated_on"] = Self.date(evaluated(flag, nil))
        object["last_exposed_on"] = Self.date(exposed(flag, nil))
        object["variations"] = (object["variations"]?.array).map { variations in
            .array(
                variations.map { variation in
                    guard var member = variation.object, let key = member["key"]?.string else { return variation }
                    member["last_evaluated_on"] = Self.date(evaluated(flag, Identifier(key)))
                    member["last_exposed_on"] = Self.date(exposed(flag, Identifier(key)))
                    return .object(member)
                })
        }
        return .object(object)
    }

    private func evaluated(_ flag: Flag, _ variation: Identifier?) -> Int64? {
        let days = days[Subject(kind: .evaluated, key: flag.key)] ?? [:]
        return variation.map { days[$0] } ?? days.values.max()
    }

    private func exposed(_ flag: Flag, _ variation: Identifier?) -> Int64? {
        flag.experiments.compactMap { experiment in
            let days = days[Subject(kind: .exposed, key: experiment.id)] ?? [:]
            guard let variation else { return days.values.max() }
            return experiment.variations.first { $0.key == variation }.flatMap { days[$0.id] }
        }.max()
    }

    private static func date(_ day: Int64?) -> JSONValue {
        day.map { .string(Instant(day: $0).date) } ?? .null
    }
}
