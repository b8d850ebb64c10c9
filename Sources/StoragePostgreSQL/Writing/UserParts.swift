import Bucketing
import Chronology
import Storage

/// A set of parts of a user's records: the parts to read, or the parts that were read. Overlapping parts are combined,
/// so that each row is read once.
struct UserParts {
    /// The parts that are not combined.
    private var parts: Set<UserRecords.Part> = []
    /// The keys of all parts `someTotals`.
    private var totals: Set<UserRecords.TotalKey> = []
    /// The earliest time of all parts `goalEvents`; `nil` if there is no such part.
    private var eventsSince: Instant?

    /// Adds a part.
    mutating func insert(_ part: UserRecords.Part) {
        switch part {
        // Reads all exposures of the user, so that one statement serves users who need one exposure and users who need
        // all.
        case .exposure: parts.insert(.exposures)
        case .removals: parts.insert(Self.removals)
        case .someTotals(let keys): totals.formUnion(keys)
        case .goalEvents(let since): eventsSince = min(eventsSince ?? since, since)
        default: parts.insert(part)
        }
    }

    /// Whether the set has a part, or parts that include it.
    func contains(_ part: UserRecords.Part) -> Bool {
        switch part {
        case .exposure: parts.contains(.exposures)
        case .removals: parts.contains(Self.removals)
        case .someTotals(let keys):
            keys.allSatisfy { totals.contains($0) || parts.contains(.totals(experimentID: $0.experimentID)) }
        case .goalEvents(let since): eventsSince.map { $0 <= since } ?? false
        default: parts.contains(part)
        }
    }

    /// The parts to read.
    var all: [UserRecords.Part] {
        Array(parts) + (totals.isEmpty ? [] : [.someTotals(Array(totals))])
            + (eventsSince.map { [.goalEvents(since: $0)] } ?? [])
    }

    /// The removals at any time, which are read in place of the removals since a time.
    private static let removals = UserRecords.Part.removals(since: .distantPast)
}
