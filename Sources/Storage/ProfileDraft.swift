import Bucketing

/// A profile taken apart for changing.
struct ProfileDraft {
    struct Entry {
        let experimentID: Identifier
        var assignment: Assignment
    }

    /// Ascending by experiment id.
    private var entries: [Entry] = []
    /// Behind what was updated last.
    private var next = 0

    /// What of a record is visible at a moment, with room for some more.
    init(_ record: ProfileRecord?, at now: Timestamp, room: Int = 0) {
        entries.reserveCapacity((record?.count ?? 0) + room)
        guard let record else { return }
        for entry in record.entries where entry.expiresAt.map({ $0 > now }) ?? true {
            entries.append(Entry(experimentID: record.experimentID(of: entry), assignment: record.assignment(of: entry)))
        }
    }

    var isEmpty: Bool { entries.isEmpty }
    var record: ProfileRecord { ProfileRecord(ascending: entries) }

    /// Lends the assignment in an experiment, to be changed, set or removed.
    mutating func update(_ experimentID: Identifier, _ change: (inout Assignment?) -> Void) {
        let index = index(of: experimentID)
        next = index + 1
        guard isPresent(experimentID, at: index) else {
            var new: Assignment?
            change(&new)
            guard let new else { return }
            // Most are new and come in order; inserting at the end costs far more than appending.
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

    mutating func removeAll(where isGone: (Identifier, Assignment) -> Bool) {
        entries.removeAll { isGone($0.experimentID, $0.assignment) }
    }

    /// Where the experiment is, or belongs.
    private func index(of experimentID: Identifier) -> Int {
        // Those of a change are in order, and mostly the same as those of the profile.
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
