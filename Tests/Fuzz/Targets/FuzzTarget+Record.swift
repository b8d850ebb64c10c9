import Chronology
import Storage

extension FuzzTarget {
    /// A record that passes the check has the entries that its header says, and is the same when written again.
    static let record = FuzzTarget(name: "record") { bytes in
        guard let record = try? ProfileRecord(checking: bytes) else { return }
        let entries = Array(record.entries)
        try expectSame(entries.count, record.count, "the number of entries")
        let pairs = entries.map { (record.experimentID(of: $0), record.assignment(of: $0)) }
        let written = ProfileRecord(Dictionary(pairs) { first, _ in first })
        try expectSame(written.count, record.count, "the number of entries, written again")
        for (id, assignment) in pairs {
            try expectSame(written[id], assignment, "the assignment in \(id), written again")
            try expectSame(record[id], assignment, "the assignment in \(id), looked up")
        }
        _ = try ProfileRecord(checking: written.bytes)
        for moment in [Instant.distantPast, .epoch, record.earliestExpiry ?? .epoch, .distantFuture] {
            _ = record.visible(at: moment)?.bytes
        }
    }
}
