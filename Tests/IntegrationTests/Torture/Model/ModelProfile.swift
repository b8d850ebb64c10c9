/// What is stored about one user as the design tells of it, written anew and without the server's code.
struct ModelProfile: Hashable, Sendable {
    enum Source: String, Sendable {
        case saved
        case bucketed
        case override
        case merged
    }

    struct Entry: Hashable, Sendable {
        var variation: String
        var source: Source
        /// The moments between which it expires, as it is not known when exactly it was saved; `nil`: it does not.
        var expiry: ClosedRange<UInt64>?
        /// Of an override.
        var reason: String?

        /// Whether it may have expired at this moment.
        func mayBeGone(at now: UInt64) -> Bool { expiry.map { $0.lowerBound <= now } ?? false }

        /// The entry, which may have expired by this moment; `nil` if it does not expire.
        func perhapsGone(by now: UInt64) -> Entry? {
            guard let expiry else { return nil }
            var entry = self
            entry.expiry = min(expiry.lowerBound, now)...expiry.upperBound
            return entry
        }

        /// Returns an entry that stands for this and another one, which differs at most in when it expires.
        func union(_ other: Entry) -> Entry? {
            guard variation == other.variation, source == other.source, reason == other.reason else { return nil }
            guard let expiry, let second = other.expiry else { return expiry == other.expiry ? self : nil }
            var union = self
            union.expiry =
                min(expiry.lowerBound, second.lowerBound)...max(expiry.upperBound, second.upperBound)
            return union
        }

        /// Whether it is the same as another, which expires at no moment at which this one does not.
        func covers(_ other: Entry) -> Bool {
            guard variation == other.variation, source == other.source, reason == other.reason else { return false }
            guard let expiry, let second = other.expiry else { return expiry == other.expiry }
            return expiry.lowerBound <= second.lowerBound && expiry.upperBound >= second.upperBound
        }
    }

    private static let beneath = "beneath "

    /// What is beneath an override is an entry of its own, under this name.
    static func beneath(_ experiment: String) -> String { beneath + experiment }

    static let absent = ModelProfile(exists: false)

    /// Whether there is a profile.
    var exists = true
    var entries: [String: Entry] = [:]
    /// The variations that are forced for a test, beside the profile, by experiment.
    var forced: [String: String] = [:]

    /// Whether nothing is stored.
    var isNothing: Bool { !exists && forced.isEmpty }

    /// What is seen of the profile.
    var shown: [String: Entry] { entries.filter { !$0.key.hasPrefix(Self.beneath) } }

    var variations: [String: String] { shown.mapValues(\.variation) }

    /// The name under which the assignment of an experiment is kept: beneath an override, if there is one.
    func place(of experiment: String) -> String {
        entries[experiment]?.source == .override ? Self.beneath(experiment) : experiment
    }

    /// The names of entries that may have expired at this moment; those beneath overrides come first, because an override
    /// that expires gives back what is beneath it.
    private func expiring(by now: UInt64) -> [(name: String, expiry: ClosedRange<UInt64>)] {
        var names: [(name: String, expiry: ClosedRange<UInt64>)] = []
        for (name, entry) in entries {
            guard let expiry = entry.expiry, expiry.lowerBound <= now else { continue }
            names.insert((name, expiry), at: name.hasPrefix(Self.beneath) ? 0 : names.count)
        }
        return names
    }

    /// All that may be left of the profile for one who looks during this time.
    func afterExpiry(during time: ClosedRange<UInt64>) -> [ModelProfile] {
        var variants = [self]
        for (name, expiry) in expiring(by: time.upperBound) {
            let without = variants.map { $0.losing(name) }
            variants = expiry.upperBound < time.lowerBound ? without : variants + without
        }
        return variants
    }

    /// The profile for all who look later: without what is gone for them, and without telling apart moments that have
    /// passed.
    ///
    /// - Parameters:
    ///   - now: nobody who has yet to look has looked by then.
    ///   - earliest: nobody who has yet to look looks before.
    func settled(at now: UInt64, _ earliest: UInt64) -> ModelProfile {
        var settled = self
        for (name, expiry) in expiring(by: now) {
            if expiry.upperBound < earliest {
                settled = settled.losing(name)
            } else if expiry.lowerBound < now {
                settled.entries[name]?.expiry = min(now, expiry.upperBound)...expiry.upperBound
            }
        }
        return settled
    }

    /// Whether everything that can be seen of another profile from now on can be seen of this one: the other is what may be
    /// left of it.
    func covers(_ other: ModelProfile, at now: UInt64) -> Bool {
        if self == other { return true }
        guard forced == other.forced else { return false }
        if entries.isEmpty || other.exists && other.entries.isEmpty {
            return exists == other.exists && entries.isEmpty && other.entries.isEmpty
        }
        return Set(shown.keys).union(other.shown.keys).allSatisfy { covers(other, of: $0, at: now) }
    }

    private func covers(_ other: ModelProfile, of experiment: String, at now: UInt64) -> Bool {
        func covers(_ own: Entry?, _ second: Entry?) -> Bool {
            guard let own else { return second == nil }
            return second.map(own.covers) ?? own.mayBeGone(at: now)
        }
        let (entry, second) = (entries[experiment], other.entries[experiment])
        let beneath = (entries[Self.beneath(experiment)], other.entries[Self.beneath(experiment)])
        guard let entry, entry.source == .override else { return beneath.1 == nil && covers(entry, second) }
        if let second, second.source == .override { return entry.covers(second) && covers(beneath.0, beneath.1) }
        return entry.mayBeGone(at: now) && beneath.1 == nil && covers(beneath.0, second)
    }

    /// The profile, with what is known of when its assignments expire after somebody saw this of it.
    func narrowed(bySeeing seen: ModelProfile, during time: ClosedRange<UInt64>) -> ModelProfile {
        var narrowed = self
        for (name, entry) in entries {
            guard let expiry = entry.expiry else { continue }
            var isThere = seen.entries[name] == entry
            if name.hasPrefix(Self.beneath) {
                isThere = isThere || seen.entries[String(name.dropFirst(Self.beneath.count))] == entry
            }
            narrowed.entries[name]?.expiry =
                isThere
                ? max(expiry.lowerBound, time.lowerBound)...max(expiry.upperBound, time.lowerBound)
                : min(expiry.lowerBound, time.upperBound)...min(expiry.upperBound, time.upperBound)
        }
        return narrowed
    }

    /// Returns a profile that stands for this and another one, which differ only in when assignments expire, and in how
    /// many assignments this differs; `nil` if there is no such profile. With more than one difference it stands for
    /// mixtures of the two as well.
    func union(_ other: ModelProfile) -> (profile: ModelProfile, differences: Int)? {
        guard exists == other.exists, forced == other.forced, entries.count == other.entries.count else { return nil }
        var union = self
        var differences = 0
        for (name, entry) in entries {
            guard let second = other.entries[name], let both = entry.union(second) else { return nil }
            if entry.expiry == second.expiry { continue }
            guard let expiry = entry.expiry, let otherExpiry = second.expiry, expiry.overlaps(otherExpiry) else {
                return nil
            }
            union.entries[name] = both
            differences += 1
        }
        return (union, differences)
    }

    /// Returns a profile that stands for this and another one, and perhaps for more: an assignment that only one of them
    /// has may have expired by now. `nil` if they differ in anything else.
    func hull(_ other: ModelProfile, at now: UInt64) -> ModelProfile? {
        func isEmptied(_ profile: ModelProfile) -> Bool { profile.exists && profile.entries.isEmpty }
        guard forced == other.forced, isEmptied(self) == isEmptied(other) else { return nil }
        var hull = self
        hull.exists = exists || other.exists
        for name in Set(entries.keys).union(other.entries.keys) {
            let both: Entry?
            switch (entries[name], other.entries[name]) {
            case (let entry?, let second?): both = entry.union(second)
            case (let entry?, nil), (nil, let entry?): both = entry.perhapsGone(by: now)
            case (nil, nil): both = nil
            }
            guard let both else { return nil }
            hull.entries[name] = both
        }
        return hull
    }

    /// Without an entry that has expired. What is beneath an override comes back; a profile of which the last assignment
    /// has expired is gone.
    private func losing(_ name: String) -> ModelProfile {
        var rest = self
        rest.entries[name] = rest.entries.removeValue(forKey: Self.beneath(name))
        if rest.entries.isEmpty { rest.exists = false }
        return rest
    }
}
