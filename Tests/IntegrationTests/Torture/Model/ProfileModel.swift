import APITestSupport

/// What each operation makes of a profile, and what may be answered to it.
struct ProfileModel: Sendable {
    /// Nanoseconds that an assignment lives after it was last saved.
    var timeToLive: UInt64?

    /// The server's clock counts milliseconds, and is read some time before or after ours.
    private static let slack: UInt64 = 10_000_000

    /// The profiles that may be there after an operation that was observed like this, made somewhen during this time;
    /// none when it could not have been observed so.
    func profiles(
        after operation: Operation, on profile: ModelProfile, observed: Observation, during time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        profile.afterExpiry(during: time).flatMap { before in
            results(of: operation, on: before, observed: observed, during: time).filter { after in
                Self.agrees(observed, with: operation, before: before, after: after)
            }.map { after in
                // Who only looks may look at a later moment than a change that happens after; what has expired for one
                // may then still be there for the other. All that is known is when it expired.
                after == before ? profile.narrowed(bySeeing: before, during: time) : after
            }
        }
    }

    /// The profiles of all users that may be there after an event that was observed like this; only those that exist.
    func profiles(after event: HistoryEvent, on profiles: [String: ModelProfile]) -> [[String: ModelProfile]] {
        let time = event.invokedAt...event.returnedAt
        let profile = profiles[event.user] ?? .absent
        func with(_ after: ModelProfile) -> [String: ModelProfile] {
            var next = profiles
            next[event.user] = after.exists ? after : nil
            return next
        }
        switch event.operation {
        case .merge(let anonymous):
            return pairs(profile, profiles[anonymous], during: time).compactMap { before, other in
                let after = merged(other, into: before, time)
                guard Self.agrees(event.observation, with: event.operation, before: before, after: after) else {
                    return nil
                }
                var next = with(after)
                next[anonymous] = nil
                return next
            }
        case .assignBeside(let anonymous, let experiment, let variations):
            return pairs(profile, profiles[anonymous], during: time).flatMap { before, other in
                assigned(experiment, among: variations, beside: other, on: before, time).filter {
                    Self.agrees(event.observation, with: event.operation, before: before, after: $0)
                }.map(with)
            }
        default:
            return self.profiles(
                after: event.operation, on: profile, observed: event.observation, during: time
            ).map(with)
        }
    }

    private func pairs(
        _ profile: ModelProfile, _ anonymous: ModelProfile?, during time: ClosedRange<UInt64>
    ) -> [(ModelProfile, ModelProfile)] {
        profile.afterExpiry(during: time).flatMap { before in
            (anonymous ?? .absent).afterExpiry(during: time).map { (before, $0) }
        }
    }

    /// The account's assignments win. Overrides stay where they are.
    private func merged(
        _ other: ModelProfile, into account: ModelProfile, _ time: ClosedRange<UInt64>
    ) -> ModelProfile {
        guard other.exists else { return account }
        var after = account
        after.exists = true
        for experiment in other.shown.keys {
            let place = account.place(of: experiment)
            guard account.entries[place] == nil, let entry = other.entries[other.place(of: experiment)] else {
                continue
            }
            after.entries[place] = taken(entry, time)
        }
        return after
    }

    private func taken(_ entry: ModelProfile.Entry, _ time: ClosedRange<UInt64>) -> ModelProfile.Entry {
        .init(variation: entry.variation, source: .merged, expiry: expiry(from: time))
    }

    private func assigned(
        _ experiment: String, among variations: [String], beside other: ModelProfile, on before: ModelProfile,
        _ time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        guard before.entries[experiment] == nil, let entry = other.entries[other.place(of: experiment)] else {
            return assigned(experiment, among: variations, lasting: variations, on: before, time)
        }
        var after = before
        after.exists = true
        after.entries[experiment] = taken(entry, time)
        return [after]
    }

    private func results(
        of operation: Operation, on before: ModelProfile, observed: Observation, during time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        if observed == .refusal { return [before] }
        var after = before
        switch operation {
        case .read, .lookup:
            break
        case .save(let map), .keep(let map):
            var keeps = false
            if case .keep = operation { keeps = true }
            save(map, keeps: keeps, in: &after, time)
        case .put(let map):
            for experiment in before.shown.keys where map[experiment] == nil {
                after.entries[before.place(of: experiment)] = nil
            }
            save(map, keeps: false, in: &after, time)
        case .override(let experiment, let variation):
            after.exists = true
            if let covered = before.entries[experiment], covered.source != .override {
                after.entries[ModelProfile.beneath(experiment)] = covered
            }
            after.entries[experiment] = .init(variation: variation, source: .override, expiry: nil)
        case .remove(let experiment):
            after.entries[experiment] = after.entries.removeValue(forKey: ModelProfile.beneath(experiment))
        case .erase:
            after = .absent
        case .assign(let experiment, let variations, let lasting),
            .evaluate(let experiment, let variations, let lasting):
            return assigned(experiment, among: variations, lasting: lasting ?? variations, on: before, time)
        case .expose(let experiment, let variation, let variations, let lasting):
            guard before.entries[experiment] == nil, variations.contains(variation) else { return [before] }
            after.exists = true
            after.entries[experiment] = .init(variation: variation, source: .saved, expiry: expiry(from: time))
            return (lasting ?? variations).contains(variation) ? [after] : [before, after]
        case .assignBeside, .merge:
            return []
        }
        return [after]
    }

    private func save(
        _ map: [String: String], keeps: Bool, in profile: inout ModelProfile, _ time: ClosedRange<UInt64>
    ) {
        profile.exists = true
        for (experiment, variation) in map {
            let place = profile.place(of: experiment)
            let stored = profile.entries[place]
            // Whoever sends back an override says only that what is beneath is still in use.
            if place != experiment, profile.entries[experiment]?.variation == variation {
                profile.entries[place]?.expiry = expiry(from: time)
                continue
            }
            if let stored, stored.variation != variation, keeps { continue }
            // Saved again with the same variation, it lives longer and came from where it came from.
            let source = stored?.variation == variation ? stored?.source ?? .saved : .saved
            profile.entries[place] = .init(variation: variation, source: source, expiry: expiry(from: time))
        }
    }

    /// Who has a variation keeps it while the experiment has it, and an override in any case; anybody else gets one of
    /// the experiment's.
    private func assigned(
        _ experiment: String, among variations: [String], lasting: [String], on before: ModelProfile,
        _ time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        var kept: [ModelProfile] = []
        if let stored = before.entries[experiment] {
            kept = [before]
            if stored.source == .override || lasting.contains(stored.variation) { return kept }
        }
        return kept
            + variations.map { variation in
                var after = before
                after.exists = true
                after.entries[experiment] = .init(variation: variation, source: .bucketed, expiry: expiry(from: time))
                return after
            }
    }

    private func expiry(from time: ClosedRange<UInt64>) -> ClosedRange<UInt64>? {
        timeToLive.map { time.lowerBound + $0 - min($0, Self.slack)...time.upperBound + $0 + Self.slack }
    }

    private static func agrees(
        _ observed: Observation, with operation: Operation, before: ModelProfile, after: ModelProfile
    ) -> Bool {
        switch observed {
        case .nothing, .acknowledgement:
            true
        case .profile(let variations):
            after.variations == variations
        case .replacement(let existed, let variations):
            before.exists == existed && after.variations == variations
        case .detail(nil):
            !after.exists
        case .detail(let detail?):
            after.exists && after.shown.mapValues { .init(variation: $0.variation, source: $0.source) } == detail
        case .variation(let variation):
            switch operation {
            case .assign(let experiment, let variations, let lasting),
                .evaluate(let experiment, let variations, let lasting):
                after.entries[experiment].map { entry in
                    // Whose override is none of the experiment's variations gets one of them, and keeps the override.
                    entry.variation == variation
                        || entry.source == .override && variations.contains(variation)
                            && !(lasting ?? variations).contains(entry.variation)
                } ?? false
            case .override(let experiment, _), .assignBeside(_, let experiment, _):
                after.entries[experiment]?.variation == variation
            default: false
            }
        case .refusal:
            true
        case .removal(let found):
            before.entries != after.entries ? found : !found
        }
    }
}
