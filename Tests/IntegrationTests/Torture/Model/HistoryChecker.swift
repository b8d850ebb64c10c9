/// Checks that what clients observed of one user, or of users who are merged, can be explained by operations that
/// happened one after the other, each at some moment between its request and its response (linearizability, Herlihy and
/// Wing 1990; found just in time, as Lowe 2017 does).
///
/// All promises about a profile follow: an acknowledged assignment is seen by every later request, to whatever process;
/// a user has one variation in an experiment while it exists; an override stays until it expires or is removed; and nobody
/// sees an older profile than before.
struct HistoryChecker: Sendable {
    /// What cannot be explained.
    struct Violation: Error, CustomStringConvertible {
        let event: HistoryEvent
        /// What could have been there before, by all that was observed until then.
        let before: [[String: ModelProfile]]
        /// What else was under way.
        let concurrent: [HistoryEvent]
        /// What had been answered last.
        let recent: [HistoryEvent]

        var description: String {
            let profiles = before.map { profiles in
                profiles.isEmpty
                    ? "absent"
                    : profiles.map { "\($0.key): \($0.value.entries), forced \($0.value.forced)" }.sorted()
                        .joined(separator: ", ")
            }.joined(separator: "\n    or ")
            return "\(event)\n  cannot be explained: the profile was \(profiles)"
                + concurrent.map { "\n  under way: \($0)" }.joined()
                + recent.map { "\n  before: \($0)" }.joined()
        }
    }

    private struct Configuration: Hashable {
        /// Those of whom something is stored, by user.
        var profiles: [String: ModelProfile]
        /// Operations that have happened and are not answered yet.
        var happened: Set<Int> = []

        /// Whether everything that may follow on another one may follow on this one.
        func covers(_ other: Configuration, at now: UInt64) -> Bool {
            happened == other.happened
                && Set(profiles.keys).union(other.profiles.keys).allSatisfy { user in
                    (profiles[user] ?? .absent).covers(other.profiles[user] ?? .absent, at: now)
                }
        }

        /// Returns one configuration for two that differ only in when one assignment expires.
        func union(_ other: Configuration) -> Configuration? {
            guard happened == other.happened, profiles.count == other.profiles.count else { return nil }
            var union = self
            var differences = 0
            for (user, profile) in profiles {
                guard let second = other.profiles[user], let both = profile.union(second) else { return nil }
                union.profiles[user] = both.profile
                differences += both.differences
            }
            return differences <= 1 ? union : nil
        }

        /// Returns one configuration for two and perhaps for more, see ``ModelProfile/hull(_:at:)``.
        func hull(_ other: Configuration, at now: UInt64) -> Configuration? {
            guard happened == other.happened else { return nil }
            var hull = self
            for user in Set(profiles.keys).union(other.profiles.keys) {
                let both = (profiles[user] ?? .absent).hull(other.profiles[user] ?? .absent, at: now)
                guard let both else { return nil }
                hull.profiles[user] = both.isNothing ? nil : both
            }
            return hull
        }

        mutating func settle(at now: UInt64, _ earliest: UInt64) {
            for (user, profile) in profiles {
                let settled = profile.settled(at: now, earliest)
                profiles[user] = settled.isNothing ? nil : settled
            }
        }
    }

    /// Configurations of which none covers another.
    private struct Frontier {
        private(set) var all: [Set<Int>: [Configuration]] = [:]

        /// - Returns: whether nothing covers it that is here already.
        mutating func insert(_ new: Configuration, at now: UInt64) -> Bool {
            let others = all[new.happened, default: []]
            guard !others.contains(where: { $0.covers(new, at: now) }) else { return false }
            all[new.happened] = others.filter { !new.covers($0, at: now) } + [new]
            return true
        }
    }

    private let model: ProfileModel
    private var configurations: [Configuration]
    /// The number of configurations beyond which those are joined that differ in more than when one assignment expires.
    private static let manyConfigurations = 24

    init(_ model: ProfileModel) {
        self.model = model
        configurations = [Configuration(profiles: [:])]
    }

    /// Goes on with the events of these users that follow those checked before. None may be under way at the end.
    mutating func check(_ events: [HistoryEvent]) throws(Violation) {
        var open: Set<Int> = []
        for moment in Self.moments(of: events) {
            if moment.isReturn {
                try complete(moment.event, open, events)
                open.remove(moment.event)
            } else {
                open.insert(moment.event)
            }
        }
    }

    /// When something is asked or answered, in order; what is asked at the moment of a response may have been earlier.
    private static func moments(of events: [HistoryEvent]) -> [(time: UInt64, isReturn: Bool, event: Int)] {
        let all = events.indices.flatMap { index in
            [
                (time: events[index].invokedAt, isReturn: false, event: index),
                (time: events[index].returnedAt, isReturn: true, event: index),
            ]
        }
        return all.sorted { ($0.time, $0.isReturn ? 1 : 0) < ($1.time, $1.isReturn ? 1 : 0) }
    }

    /// By the time that an operation is answered it has happened, after some of those under way.
    private mutating func complete(_ index: Int, _ open: Set<Int>, _ events: [HistoryEvent]) throws(Violation) {
        let mayNotHaveHappened = events[index].observation == .nothing
        let now = events[index].returnedAt
        let earliest = open.map { events[$0].invokedAt }.min() ?? now
        var explained = Frontier()
        var seen = Frontier()
        var waiting = configurations
        for configuration in configurations { _ = seen.insert(configuration, at: now) }
        while var configuration = waiting.popLast() {
            // A read that fits now need not be tried later: it changes nothing.
            for next in open where !configuration.happened.contains(next) && events[next].operation.changesNothing {
                guard events[next].observation != .nothing,
                    model.profiles(after: events[next], on: configuration.profiles) == [configuration.profiles]
                else { continue }
                configuration.happened.insert(next)
            }
            if mayNotHaveHappened || configuration.happened.contains(index) {
                var done = configuration
                done.happened.remove(index)
                _ = explained.insert(done, at: now)
            }
            if configuration.happened.contains(index) { continue }
            for next in open where !configuration.happened.contains(next) {
                let event = events[next]
                configuration.happened.insert(next)
                for profiles in model.profiles(after: event, on: configuration.profiles) {
                    if event.observation == .nothing, profiles == configuration.profiles { continue }
                    var following = Configuration(profiles: profiles, happened: configuration.happened)
                    following.settle(at: now, earliest)
                    if seen.insert(following, at: now) { waiting.append(following) }
                }
                configuration.happened.remove(next)
            }
        }
        let all = explained.all.values.flatMap { $0 }
        guard !all.isEmpty else {
            throw Violation(
                event: events[index], before: Array(Set(configurations.map(\.profiles))),
                concurrent: open.filter { $0 != index }.map { events[$0] },
                recent: events.filter { $0.returnedAt < events[index].returnedAt }
                    .sorted { $0.returnedAt < $1.returnedAt }.suffix(20))
        }
        configurations = Self.united(Self.withoutNeedless(all, events), at: now)
    }

    /// Joins configurations that differ only in when one assignment expires. When operations are slow, each order in
    /// which they may have happened gives other times. If many are left, joins those that differ in what may have expired,
    /// too: then some of what cannot be explained may go unnoticed, but nothing right is found wrong.
    private static func united(_ configurations: [Configuration], at now: UInt64) -> [Configuration] {
        let united = joined(configurations) { $0.union($1) }
        return united.count > manyConfigurations ? joined(united) { $0.hull($1, at: now) } : united
    }

    private static func joined(
        _ configurations: [Configuration], _ join: (Configuration, Configuration) -> Configuration?
    ) -> [Configuration] {
        var joined: [Configuration] = []
        for configuration in configurations {
            var whole = configuration
            var index = 0
            while index < joined.count {
                if let both = join(joined[index], whole) {
                    joined.remove(at: index)
                    (whole, index) = (both, 0)
                } else {
                    index += 1
                }
            }
            joined.append(whole)
        }
        return joined
    }

    /// Leaves out each configuration that another one equals except for an operation without a response: whatever can
    /// follow when it has happened can follow without it, because it need never happen. Otherwise every such operation
    /// would double the configurations for good, however soon it is overwritten.
    private static func withoutNeedless(
        _ configurations: [Configuration], _ events: [HistoryEvent]
    ) -> [Configuration] {
        let known = Set(configurations)
        return configurations.filter { configuration in
            !configuration.happened.contains { index in
                guard events[index].observation == .nothing else { return false }
                var other = configuration
                other.happened.remove(index)
                return known.contains(other)
            }
        }
    }
}
