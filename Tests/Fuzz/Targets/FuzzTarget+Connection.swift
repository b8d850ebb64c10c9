@testable import HTTPServer

extension FuzzTarget {
    /// A connection makes the same requests and gives the same answers however its bytes come, and owes nothing when
    /// they have ended.
    static let connection = FuzzTarget(name: "connection") { bytes in
        let whole = try FuzzedConnection.outcome(of: bytes, cuts: [bytes.count])
        for cuts in Cuts.all(of: bytes) {
            try expectSame(whole, FuzzedConnection.outcome(of: bytes, cuts: cuts), "cut at \(cuts)")
        }
    }
}
