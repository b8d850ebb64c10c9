import Bucketing

/// A profile taken apart for changing.
struct ProfileDraft {
    /// Ascending by experiment id.
    private var entries: [(experimentID: Identifier, assignment: Assignment)] = []

    /// What of a record is visible at a moment, with room for some more.
    init(_ record: ProfileRecord?, at now: Timestamp, room: Int = 0) {
        entries.reserveCapacity((record?.count ?? 0) + room)
        guard let record else { return }
        for entry in record.entries where entry.expiresAt.map({ $0 > now }) ?? true {
            entries.append((record.experimentID(of: entry), record.assignment(of: entry)))
        }
    }

    var isEmpty: Bool { entries.isEmpty }
    var record: ProfileRecord { ProfileRecord(ascending: entries) }

    subscript(experimentID: Identifier) -> Assignment? {
        get {
            let index = index(of: experimentID)
            return isPresent(experimentID, at: index) ? entries[index].assignment : nil
        }
        set {
            let index = index(of: experimentID)
            switch (isPresent(experimentID, at: index), newValue) {
            case (true, let assignment?): entries[index].assignment = assignment
            case (true, nil): entries.remove(at: index)
            case (false, let assignment?):
                // Most are new and come in order; inserting at the end costs far more than appending.
                if index == entries.count {
                    entries.append((experimentID, assignment))
                } else {
                    entries.insert((experimentID, assignment), at: index)
                }
            case (false, nil): break
            }
        }
    }

    mutating func removeAll(where isGone: (Identifier, Assignment) -> Bool) {
        entries.removeAll { isGone($0.experimentID, $0.assignment) }
    }

    /// Where the experiment is, or belongs.
    private func index(of experimentID: Identifier) -> Int {
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
