/// A property that must hold for any input.
struct FuzzTarget: Sendable, CustomStringConvertible {
    /// Also the name of its corpus.
    let name: String
    /// - Throws: ``Finding`` if the property does not hold. A crash is a finding by itself.
    let check: @Sendable ([UInt8]) throws -> Void

    var description: String { name }

    static let all: [FuzzTarget] = [
        requestHead, connection, chunkedBody, query, json, profile, importLines, datafile, experiment, condition,
        segment, record, tokens, signIn,
    ]
}

/// A violated property.
struct Finding: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Compares two results of one input.
func expectSame<Value: Equatable>(_ left: Value, _ right: Value, _ claim: String) throws {
    guard left == right else { throw Finding("\(claim):\n\(left)\n\(right)") }
}
