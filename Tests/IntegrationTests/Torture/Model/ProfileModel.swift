import APITestSupport

/// What each operation makes of a profile, and what may be answered to it.
struct ProfileModel: Sendable {
    /// Nanoseconds that an assignment lives after it was last saved.
    var timeToLive: UInt64?

    /// The server's clock counts milliseconds, and is read some time before or after ours.
    private static let slack: UInt64 = 10_000_000

    /// What may be stored about all users after an event that was observed like this; only of those of whom something is.
    func profiles(after event: HistoryEvent, on profiles: [String: ModelProfile]) -> [[String: ModelProfile]] {
        let time = event.invokedAt...event.returnedAt
        let profile = profiles[event.user] ?? .absent
        func with(_ after: ModelProfile) -> [String: ModelProfile] {
            var next = profiles
            next[event.user] = after.isNothing ? nil : after
            return next
        }
        func agrees(_ before: ModelProfile, _ after: ModelProfile) -> Bool {
            Self.agrees(event.observation, with: event.operation, before: before, after: after)
        }
        switch event.operation {
        case .merge(let anonymous):
            return pairs(profile, profiles[anonymous], during: time).compactMap { before, other in
                let after = merged(other, into: before, time)
                guard agrees(before, after) else { return nil }
                var next = with(after)
                next[anonymous] = nil
                return next
            }
        case .assignBeside(let anonymous, let experiment, let variations, let lasting):
            return pairs(profile, profiles[anonymous], during: time).flatMap { before, other in
                assigned(experiment, Choice(variations, lasting), beside: other, on: before, time).filter {
                    agrees(before, $0)
                }.map(with)
            }
        default:
            return profile.afterExpiry(during: time).flatMap { before in
                results(of: event.operation, on: before, observed: event.observation, during: time).filter {
                    agrees(before, $0)
                }.map { after in
                    // Who only looks may look at a later moment than a change that happens after; what has expired for
                    // one may then still be there for the other. All that is known is when it expired.
                    with(after == before ? profile.narrowed(bySeeing: before, during: time) : after)
                }
            }
        }
    }

    private func pairs(
        _ profile: ModelProfile, _ anonymous: ModelProfile?, during time: ClosedRange<UInt64>
    ) -> [(ModelProfile, ModelProfile)] {
        profile.afterExpiry(during: time).flatMap { before in
            (anonymous ?? .absent).afterExpiry(during: time).map { (before, $0) }
        }
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
        case .override(let experiment, let variation, let reason, let milliseconds):
            after.exists = true
            if let covered = before.entries[experiment], covered.source != .override {
                after.entries[ModelProfile.beneath(experiment)] = covered
            }
            after.entries[experiment] = .init(
                variation: variation, source: .override,
                expiry: expiry(milliseconds.map { $0 * 1_000_000 }, from: time),
                reason: reason)
        case .remove(let experiment):
            after.entries[experiment] = after.entries.removeValue(forKey: ModelProfile.beneath(experiment))
        case .force(let experiment, let variation):
            after.forced[experiment] = variation
        case .erase:
            after = .absent
        case .assign(let experiment, let variations, let lasting),
            .evaluate(let experiment, let variations, let lasting):
            return assigned(experiment, Choice(variations, lasting), on: before, time)
        case .expose(let experiment, let variation, let variations, let lasting):
            let choice = Choice(variations, lasting)
            guard before.entries[experiment] == nil, before.forced[experiment] == nil, choice.mayHave(variation) else {
                return [before]
            }
            after.exists = true
            after.entries[experiment] = .init(
                variation: variation, source: .saved, expiry: expiry(timeToLive, from: time))
            return choice.has(variation) ? [after] : [before, after]
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
                profile.entries[place]?.expiry = expiry(timeToLive, from: time)
                continue
            }
            if let stored, stored.variation != variation, keeps { continue }
            // Saved again with the same variation, it lives longer and came from where it came from.
            let source = stored?.variation == variation ? stored?.source ?? .saved : .saved
            profile.entries[place] = .init(
                variation: variation, source: source, expiry: expiry(timeToLive, from: time))
        }
    }

    private func expiry(_ lifetime: UInt64?, from time: ClosedRange<UInt64>) -> ClosedRange<UInt64>? {
        lifetime.map { time.lowerBound + $0 - min($0, Self.slack)...time.upperBound + $0 + Self.slack }
    }

    private static func agrees(
        _ observed: Observation, with operation: Operation, before: ModelProfile, after: ModelProfile
    ) -> Bool {
        switch observed {
        case .nothing, .acknowledgement, .refusal:
            true
        case .profile(let variations):
            after.variations == variations
        case .replacement(let existed, let variations):
            before.exists == existed && after.variations == variations
        case .detail(nil):
            !after.exists
        case .detail(let detail?):
            after.exists
                && after.shown.mapValues { .init(variation: $0.variation, source: $0.source, reason: $0.reason) }
                    == detail
        case .variation(let variation):
            switch operation {
            case .assign(let experiment, let variations, let lasting),
                .evaluate(let experiment, let variations, let lasting),
                .assignBeside(_, let experiment, let variations, let lasting):
                before.forced[experiment] == variation && before == after
                    || after.entries[experiment].map {
                        mayShow(
                            variation, of: $0, over: after.entries[ModelProfile.beneath(experiment)],
                            Choice(variations, lasting))
                    } ?? false
            case .override(let experiment, _, _, _):
                after.entries[experiment]?.variation == variation
            default: false
            }
        case .removal(let found):
            before.entries != after.entries ? found : !found
        }
    }

    /// Whether a user with this assignment may be given a variation. An override to what the experiment does not have
    /// gives way to the assignment beneath; who has none either gets one of the experiment's variations for the moment.
    private static func mayShow(
        _ variation: String, of entry: ModelProfile.Entry, over beneath: ModelProfile.Entry?, _ choice: Choice
    ) -> Bool {
        if entry.variation == variation { return true }
        guard entry.source == .override, !choice.has(entry.variation) else { return false }
        guard let beneath else { return choice.mayHave(variation) }
        return beneath.variation == variation || !choice.has(beneath.variation) && choice.mayHave(variation)
    }
}

/// The variations of an experiment while something happens.
private struct Choice {
    /// Those that it may have had.
    let among: [String]
    /// Those that it had all the while.
    let lasting: [String]

    init(_ among: [String], _ lasting: [String]?) {
        self.among = among
        self.lasting = lasting ?? among
    }

    func has(_ variation: String) -> Bool { lasting.contains(variation) }
    func mayHave(_ variation: String) -> Bool { among.contains(variation) }
}

// MARK: - Deciding

extension ProfileModel {
    /// Who has a variation keeps it while the experiment has it, and an override in any case; anybody else gets one of
    /// the experiment's. A server that knows of a forced variation stores nothing.
    private func assigned(
        _ experiment: String, _ choice: Choice, on before: ModelProfile, _ time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        var kept = before.forced[experiment] == nil ? [] : [before]
        if let stored = before.entries[experiment] {
            kept = [before]
            if stored.source == .override || choice.has(stored.variation) { return kept }
        }
        return kept + bucketed(experiment, choice, on: before, time)
    }

    private func bucketed(
        _ experiment: String, _ choice: Choice, on before: ModelProfile, _ time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        choice.among.map { variation in
            var after = before
            after.exists = true
            after.entries[experiment] = .init(
                variation: variation, source: .bucketed, expiry: expiry(timeToLive, from: time))
            return after
        }
    }

    private func assigned(
        _ experiment: String, _ choice: Choice, beside other: ModelProfile, on before: ModelProfile,
        _ time: ClosedRange<UInt64>
    ) -> [ModelProfile] {
        guard before.entries[experiment] == nil, let entry = other.entries[other.place(of: experiment)] else {
            return assigned(experiment, choice, on: before, time)
        }
        var after = before
        after.exists = true
        after.entries[experiment] = taken(entry, time)
        let kept = before.forced[experiment] == nil ? [after] : [before, after]
        return choice.has(entry.variation) ? kept : kept + bucketed(experiment, choice, on: before, time)
    }

    // MARK: Merging

    /// The account's assignments win. Overrides stay where they are, and so does what is forced.
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
        .init(variation: entry.variation, source: .merged, expiry: expiry(timeToLive, from: time))
    }
}
