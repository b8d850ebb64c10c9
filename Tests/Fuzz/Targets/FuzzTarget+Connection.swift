@testable import HTTPServer

extension FuzzTarget {
    /// A connection makes the same requests and responses however its bytes are cut, and is done when they end.
    static let connection = FuzzTarget(name: "connection") { bytes in
        let whole = try FuzzedConnection.outcome(of: bytes, cuts: [bytes.count])
        for cuts in Cuts.all(of: bytes) {
            try expectSame(whole, FuzzedConnection.outcome(of: bytes, cuts: cuts), "cut at \(cuts)")
        }
    }
}
