import Bucketing
import Definitions
import Storage

@testable import HoldfastCore
import TestSupport

extension FuzzTarget {
    /// A profile that was written is read as the same profile, and holds only what a profile may hold.
    static let profile = FuzzTarget(name: "profile") { bytes in
        let read = { (bytes: [UInt8]) in bytes.withUnsafeBytes { try? ProfileInput($0) } }
        let parsed = bytes.withUnsafeBytes { try? JSONInput.parse($0) }.flatMap { try? ProfileInput($0) }
        guard let body = read(bytes) else {
            if parsed != nil { throw Finding("refused as bytes and accepted as a value") }
            return
        }
        try expectSame(parsed?.userID, body.userID, "the user of the value and of the bytes")
        try expectSame(parsed?.assignments, body.assignments, "the map of the value and of the bytes")
        guard (1...1_024).contains(body.userID.string.utf8.count) else { throw Finding("a user id of a wrong length") }
        let assignments = body.assignments.entries.map {
            let assignment = Assignment(
                variationID: $0.variationID, source: .saved, assignedAt: 1, updatedAt: 1, expiresAt: nil)
            return ($0.experimentID, assignment)
        }
        let record = ProfileRecord(Dictionary(uniqueKeysWithValues: assignments))
        let again = read(ProfileJSON.encode(body.userID, record))
        try expectSame(again?.userID, body.userID, "the user, written and read again")
        try expectSame(again?.assignments, body.assignments, "the map, written and read again")
    }

    /// An import has the same lines however its bytes come, and no line is longer than it may be.
    static let importLines = FuzzTarget(name: "import-lines") { bytes in
        let whole = lines(of: bytes, cuts: [bytes.count])
        for cuts in Cuts.all(of: bytes) {
            try expectSame(whole, lines(of: bytes, cuts: cuts), "cut at \(cuts)")
        }
        if whole.contains(where: { $0.utf8.count > 256 * 4 }) { throw Finding("a line is longer than the limit") }
    }

    /// What each line means: a user and a map, a refusal, nothing; too long.
    private static func lines(of bytes: [UInt8], cuts: [Int]) -> [String] {
        var splitter = LineSplitter(limit: 256)
        var lines: [String] = []
        func take(_ number: Int, _ line: UnsafeRawBufferPointer?) {
            guard let line else { return lines.append("too long") }
            do throws(CoreError) {
                let change = try ProfileLine.change(from: line, onConflict: .keep)
                guard case .save(let map, _)? = change?.operation, let user = change?.userID else {
                    return lines.append("empty")
                }
                lines.append("\(user) \(map.entries)")
            } catch {
                lines.append("\(error)")
            }
        }
        var start = 0
        for cut in cuts {
            bytes.withUnsafeBytes { splitter.append(UnsafeRawBufferPointer(rebasing: $0[start..<cut]), line: take) }
            start = cut
        }
        splitter.end(line: take)
        return lines
    }
}
