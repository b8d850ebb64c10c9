import Bucketing
import Chronology

/// A decoded profile that is being changed. ``ProfileRules`` decode a ``ProfileRecord`` to a draft, change the entries
/// of the draft, and encode it again (``record``).
///
/// Changes usually concern experiments in ascending order, most of which the profile has. Searching an entry therefore
/// begins after the entry that was updated last.
struct ProfileDraft {
    /// The assignment in one experiment.
    struct Entry {
        let experimentID: Identifier
        var assignment: Assignment
    }

    /// In the byte order of experiment ids.
    private var entries: [Entry] = []
    /// The index after the entry that was updated last.
    private var next = 0

    /// Decodes the entries that have not expired.
    ///
    /// - Parameters:
    ///   - record: `nil` for a user without a profile.
    ///   - now: the time at which expiry is judged; ``Instant/distantPast`` keeps all entries.
    ///   - room: the number of entries that may be added, for which memory is reserved.
    init(_ record: ProfileRecord?, at now: Instant, room: Int = 0) {
        entries.reserveCapacity((record?.count ?? 0) + room)
        guard let record else { return }
        for entry in record.entries {
            // The usual entry has no layer. If it has expired, nothing is left of it, and decoding it can be saved.
            let assignment: Assignment?
            if entry.layer.isEmpty {
                let isPresent = entry.expiresAt.map { $0 > now } ?? true
                assignment = isPresent ? record.assignment(of: entry) : nil
            } else {
                assignment = record.assignment(of: entry).visible(at: now)
            }
            guard let assignment else { continue }
            entries.append(Entry(experimentID: record.experimentID(of: entry), assignment: assignment))
        }
    }

    var isEmpty: Bool { entries.isEmpty }
    var count: Int { entries.count }
    /// The encoded profile.
    var record: ProfileRecord { ProfileRecord(ascending: entries) }

    /// Passes the assignment in an experiment to a closure, which may change, set or remove it.
    mutating func update(_ experimentID: Identifier, _ change: (inout Assignment?) -> Void) {
        let index = index(of: experimentID)
        next = index + 1
        guard isPresent(experimentID, at: index) else {
            var new: Assignment?
            change(&new)
            guard let new else { return }
            // New entries mostly come in ascending order, and `insert` at the end costs far more than `append`.
            if index == entries.count {
                entries.append(Entry(experimentID: experimentID, assignment: new))
            } else {
                entries.insert(Entry(experimentID: experimentID, assignment: new), at: index)
            }
            return
        }
        var assignment: Assignment? = entries[index].assignment
        change(&assignment)
        if let assignment {
            entries[index].assignment = assignment
        } else {
            entries.remove(at: index)
        }
    }

    /// Passes the assignment in an experiment to a closure, which may change, set or remove it. An override is left
    /// alone: the closure gets the underlying assignment, and the override as its second argument.
    mutating func updateBeneath(
        _ experimentID: Identifier, _ change: (_ assignment: inout Assignment?, _ override: Assignment?) -> Void
    ) {
        update(experimentID) { assignment in
            // Usually there is no override, and nothing is copied.
            guard assignment?.source == .override, let override = assignment else { return change(&assignment, nil) }
            var beneath = override.layer?.beneath
            change(&beneath, override)
            assignment = override.covering(beneath)
        }
    }

    /// Removes the assignments in experiments. Overrides stay, but lose their underlying assignments.
    ///
    /// - Parameter isRemoved: whether the assignment in an experiment is removed.
    mutating func removeBeneath(where isRemoved: (Identifier) -> Bool) {
        entries.removeAll { $0.assignment.source != .override && isRemoved($0.experimentID) }
        for index in entries.indices where entries[index].assignment.layer?.beneath != nil {
            guard isRemoved(entries[index].experimentID) else { continue }
            entries[index].assignment = entries[index].assignment.covering(nil)
        }
    }

    /// Returns the index of the experiment's entry, or the index at which to insert one.
    private func index(of experimentID: Identifier) -> Int {
        if isPresent(experimentID, at: next) { return next }
        guard let last = entries.last, !(last.experimentID < experimentID) else { return entries.count }
        var low = 0
        var high = entries.count
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].experimentID < experimentID {
                low = middle + 1
            } else {
                high = middle
            }
        }
        return low
    }

    /// Whether the entry at an index is that of the experiment.
    private func isPresent(_ experimentID: Identifier, at index: Int) -> Bool {
        index < entries.count && entries[index].experimentID == experimentID
    }
}
