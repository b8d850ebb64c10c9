import TestSupport
import Testing

@testable import HTTPServer

@Suite struct PercentDecodingTests {
    @Test(arguments: [
        ("", ""), ("abc", "abc"), ("a%20b", "a b"), ("%C3%A9%e2%82%ac", "é€"), ("a%2Fb", "a/b"), ("a+b", "a+b"),
        ("%25%32%35", "%25"), ("%00", "\0"),
    ])
    func `Triplets become bytes`(_ text: String, decoded: String) {
        #expect(decode(text) == decoded)
    }

    @Test func `A plus is a space where a form says so`() {
        #expect(decode("a+b%2Bc", plusIsSpace: true) == "a b+c")
    }

    @Test(arguments: ["%FF", "%C3", "%C3%28", "%ED%A0%80", "%C0%AF"])
    func `What is not UTF-8 is not decoded`(_ text: String) {
        #expect(decode(text) == nil)
    }

    /// Bytes of which most are, or nearly are, UTF-8.
    @Test func `Bytes are a text exactly when they are valid`() {
        var random = SeededGenerator(seed: 7)
        let pieces: [[UInt8]] = [
            [0x61], [0xC3, 0xA9], [0xE2, 0x82, 0xAC], [0xF0, 0x9F, 0x98, 0x80], [0xEF, 0xBF, 0xBD], [0xC3], [0x80],
            [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80], [0xC0, 0x80], [0xE2, 0x82], [0],
        ]
        for _ in 0..<20_000 {
            let count = Int.random(in: 0...6, using: &random)
            let bytes = (0..<count).flatMap { _ in pieces.randomElement(using: &random) ?? [] }
            let text = bytes.withUnsafeBytes { String(utf8: $0) }
            #expect(text.map { Array($0.utf8) } == String(validating: bytes, as: UTF8.self).map { _ in bytes })
        }
    }

    private func decode(_ text: String, plusIsSpace: Bool = false) -> String? {
        Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0, plusIsSpace: plusIsSpace) }
    }
}
