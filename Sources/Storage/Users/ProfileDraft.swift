import Bucketing
import Chronology

/// A decoded profile that is being changed. ``ProfileRules`` decode a ``ProfileRecord`` to a draft, change its entries,
/// and encode it again (``record``).
struct ProfileDraft {
    struct Entry {
        let experimentID: Identifier
        var assignment: Assignment
    }

    /// In the byte order of experiment ids.
    private var entries: [Entry] = []
    /// The index after the entry that was updated last, where ``index(of:)`` looks first.
    private var next = 0

    /// Decodes the entries that have not expired.
    ///
    /// - Parameter room: the number of entries that may be added, for which memory is reserved.
    init(_ record: ProfileRecord?, at now: Instant, room: Int = 0) {
        entries.reserveCapacity((record?.count ?? 0) + room)
        guard let record else { return }
        for entry in record.entries {
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
    var record: ProfileRecord { ProfileRecord(ascending: entries) }

    /// Passes the assignment in an experiment to a closure, which may change, set or remove it.
    mutating func update(_ experimentID: Identifier, _ change: (inout Assignment?) -> Void) {
        let index = index(of: experimentID)
        next = index + 1
        guard isPresent(experimentID, at: index) else {
            var new: Assignment?
            change(&new)
            guard let new else { return }
            // New entries mostly come in order, and `insert` at the end costs far more than `append`.
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

    /// Passes the assignment in an experiment to a closure, which may change, set or remove it. If there is an
    /// override, the closure gets the underlying assignment, and the override as its second argument.
    mutating func updateBeneath(
        _ experimentID: Identifier, _ change: (_ assignment: inout Assignment?, _ override: Assignment?) -> Void
    ) {
        update(experimentID) { assignment in
            // The usual case copies nothing.
            guard assignment?.source == .override, let override = assignment else { return change(&assignment, nil) }
            var beneath = override.layer?.beneath
            change(&beneath, override)
            assignment = override.covering(beneath)
        }
    }

    /// Removes assignments by their experiments. Overrides stay, without the underlying assignment.
    mutating func removeBeneath(where isGone: (Identifier) -> Bool) {
        entries.removeAll { $0.assignment.source != .override && isGone($0.experimentID) }
        for index in entries.indices where entries[index].assignment.layer?.beneath != nil {
            guard isGone(entries[index].experimentID) else { continue }
            entries[index].assignment = entries[index].assignment.covering(nil)
        }
    }

    /// The index of the experiment's entry, or the index at which to insert one.
    private func index(of experimentID: Identifier) -> Int {
        // The experiments of a change are in order and mostly the same as those of the profile.
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

    private func isPresent(_ experimentID: Identifier, at index: Int) -> Bool {
        index < entries.count && entries[index].experimentID == experimentID
    }
}
