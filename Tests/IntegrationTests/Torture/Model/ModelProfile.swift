/// A profile as the design tells of it, written anew and without the server's code.
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
    }

    /// What is beneath an override is an entry of its own, under this name.
    static func beneath(_ experiment: String) -> String { "beneath " + experiment }

    static let absent = ModelProfile(exists: false)

    var exists = true
    var entries: [String: Entry] = [:]

    /// What is seen of the profile.
    var shown: [String: Entry] { entries.filter { !$0.key.hasPrefix(Self.beneath("")) } }

    var variations: [String: String] { shown.mapValues(\.variation) }

    /// The name under which the assignment of an experiment is kept: beneath an override, if there is one.
    func place(of experiment: String) -> String {
        entries[experiment]?.source == .override ? Self.beneath(experiment) : experiment
    }

    /// All that may be left of the profile for one who looks during this time.
    func afterExpiry(during time: ClosedRange<UInt64>) -> [ModelProfile] {
        var variants = [self]
        for (experiment, entry) in entries {
            guard let expiry = entry.expiry, expiry.lowerBound <= time.upperBound else { continue }
            let without = variants.map { $0.losing(experiment) }
            variants = expiry.upperBound < time.lowerBound ? without : variants + without
        }
        return variants
    }

    /// The profile, with what is known of when its assignments expire after somebody saw this of it.
    func narrowed(bySeeing seen: ModelProfile, during time: ClosedRange<UInt64>) -> ModelProfile {
        var narrowed = self
        for (experiment, entry) in entries {
            guard let expiry = entry.expiry else { continue }
            let isThere = seen.entries[experiment] != nil
            narrowed.entries[experiment]?.expiry =
                isThere
                ? max(expiry.lowerBound, time.lowerBound)...max(expiry.upperBound, time.lowerBound)
                : min(expiry.lowerBound, time.upperBound)...min(expiry.upperBound, time.upperBound)
        }
        return narrowed
    }

    /// Returns a profile that stands for this and another one, which differ only in when assignments expire, and in how
    /// many assignments this differs; `nil` if there is no such profile. With more than one difference it would stand for
    /// mixtures of the two as well.
    func union(_ other: ModelProfile) -> (profile: ModelProfile, differences: Int)? {
        guard exists == other.exists, entries.count == other.entries.count else { return nil }
        var union = self
        var differences = 0
        for (experiment, entry) in entries {
            guard let second = other.entries[experiment], second.variation == entry.variation,
                second.source == entry.source
            else { return nil }
            if entry.expiry == second.expiry { continue }
            guard let expiry = entry.expiry, let otherExpiry = second.expiry, expiry.overlaps(otherExpiry) else {
                return nil
            }
            union.entries[experiment]?.expiry =
                min(expiry.lowerBound, otherExpiry.lowerBound)...max(expiry.upperBound, otherExpiry.upperBound)
            differences += 1
        }
        return (union, differences)
    }

    /// A profile of which the last assignment has expired is gone.
    private func losing(_ experiment: String) -> ModelProfile {
        var rest = self
        rest.entries[experiment] = nil
        return rest.entries.isEmpty ? .absent : rest
    }
}
