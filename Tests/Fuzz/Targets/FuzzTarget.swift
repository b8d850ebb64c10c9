/// One thing that must hold whatever bytes come.
struct FuzzTarget: Sendable, CustomStringConvertible {
    /// Names its corpus, too.
    let name: String
    /// - Throws: ``Finding`` when it does not hold. What must never happen at all, a crash, needs no words.
    let check: @Sendable ([UInt8]) throws -> Void

    var description: String { name }

    static let all: [FuzzTarget] = [
        requestHead, connection, chunkedBody, query, json, profile, importLines, datafile, experiment, condition,
        record, tokens,
    ]
}

/// What was found not to hold.
struct Finding: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Holds two results of one input against each other.
func expectSame<Value: Equatable>(_ left: Value, _ right: Value, _ claim: String) throws {
    guard left == right else { throw Finding("\(claim):\n\(left)\n\(right)") }
}
