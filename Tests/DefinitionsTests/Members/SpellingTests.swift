import Testing

@testable import Definitions

/// Which name was probably meant.
@Suite struct SpellingTests {
    static let members = ["key", "variations", "traffic", "audience", "enrollment", "start_at", "description", "name"]

    @Test(
        arguments: [
            ("trafic", "traffic"), ("Traffic", "traffic"), ("taffric", "traffic"), ("tariff", nil),
            ("startAt", "start_at"),
            ("start-at", "start_at"), ("start", "start_at"), ("descr", "description"), ("nmae", "name"),
            ("variants", "variations"), ("percentage", "traffic"), ("targeting", "audience"), ("color", nil), ("", nil),
            ("k", nil), (String(repeating: "traffic", count: 10), nil),
        ] as [(String, String?)])
    func `A name is found by few edits, a beginning, or the word of another product`(text: String, meant: String?) {
        #expect(Spelling.nearest(to: text, among: Self.members) == meant)
    }

    @Test(arguments: [("onn", "on"), ("cotnrol", "control"), ("new", "new"), ("variant", nil), ("n", nil)])
    func `A misspelt name differs by one or two letters`(text: String, meant: String?) {
        #expect(Spelling.misspelt(text, among: ["on", "off", "control", "new"]) == meant)
    }

    @Test func `A hint ends an error, or is empty`() {
        #expect(Spelling.hint(for: "contrl", among: ["control", "new"]) == "; did you mean 'control'?")
        #expect(Spelling.hint(for: "other", among: ["control", "new"]) == "")
    }
}
