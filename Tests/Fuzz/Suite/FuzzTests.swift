import TestSupport
import Testing

/// The fuzzers' short form: what they began with and what they found, and some mutations that are always the same.
/// `Tests/Fuzz/run` is the long one.
@Suite struct FuzzTests {
    private static let mutations = 120

    @Test(arguments: FuzzTarget.all)
    func `What must hold of any bytes holds of the corpus and of what is near it`(target: FuzzTarget) throws {
        let inputs = try Corpus.inputs(of: target)
        #expect(!inputs.isEmpty)
        for input in inputs {
            #expect(throws: Never.self, "\(Self.quoted(input))") { try target.check(input) }
        }
        var random = SeededGenerator(seed: 5)
        for _ in 0..<Self.mutations {
            let input = (inputs.randomElement(using: &random) ?? []).mutated(with: inputs, using: &random)
            #expect(throws: Never.self, "\(Self.quoted(input))") { try target.check(input) }
        }
    }

    private static func quoted(_ input: [UInt8]) -> String {
        String(decoding: input, as: UTF8.self).debugDescription
    }
}
