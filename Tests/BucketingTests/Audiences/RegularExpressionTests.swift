import Bucketing
import Testing

@Suite struct RegularExpressionTests {
    private func matches(_ pattern: String, _ text: String, ignoresCase: Bool = false) throws -> Bool? {
        let expression = try RegularExpression(pattern, ignoresCase: ignoresCase)
        var text = text
        return text.withUTF8 { expression.matches(UnsafeRawBufferPointer($0)) }
    }

    @Test(arguments: [
        ("b", "abc", true), ("^b", "abc", false), ("c$", "abc", true), ("^$", "", true), ("^$", "a", false),
        ("^a.c$", "aéc", true), ("^a.c$", "a\nc", false), ("^(ab|cd)+$", "abcdab", true), ("^(ab|cd)+$", "abc", false),
        ("^a{2,3}$", "aa", true), ("^a{2,3}$", "aaaa", false), ("^a{2,}$", "aaaaa", true), ("^a{0}$", "", true),
        ("[^a-c]", "abc", false), ("[^a-c]", "abé", true), (#"^\d{3}-\w+$"#, "123-a_B", true), (#"\W"#, "ab_1", false),
        (#"[\w.+-]+@example[.](com|org)$"#, "a.b+c@example.org", true), (#"^\s*$"#, " \t\n", true),
        ("[é-ü]", "ö", true), ("(^|,)b(,|$)", "a,b", true), ("(^|,)b(,|$)", "ab", false), ("^^a$$", "a", true),
        ("a*?b", "aab", true), ("", "x", true), ("a|", "x", true), (#"\^\$\\"#, #"^$\"#, true), ("[]a]", "", nil),
    ])
    func `A pattern is found anywhere in the text, unless it has anchors`(
        pattern: String, text: String, result: Bool?
    ) throws {
        guard let result else {
            #expect(throws: RegularExpressionError.self) { try matches(pattern, text) }
            return
        }
        #expect(try matches(pattern, text) == result)
    }

    @Test(arguments: [("^ab$", "AB"), ("^É[à-ü]$", "éÄ"), ("^[A-Z]$", "q"), (#"^\w[^X]$"#, "Ay")])
    func `Case can be ignored, also beyond ASCII`(pattern: String, text: String) throws {
        #expect(try matches(pattern, text, ignoresCase: true) == true)
        #expect(try matches("[^a]", "A", ignoresCase: true) == false)
    }

    @Test(arguments: [
        "(", ")", "[", "[]", "[b-a]", "[[:alpha:]]", "*a", "a**", "a{", "a{2", "a{3,2}", "a{257}", "^*", #"\"#, #"\b"#,
        #"(a)\1"#, "(?=a)", "(?i)a", "(?<n>a)", "a{200}b{100}", "((((a{9}){9}){9}){9})", "(((){200}){200}){200}",
        String(repeating: "(", count: 33) + String(repeating: ")", count: 33), String(repeating: "a", count: 1_001),
    ])
    func `A pattern with other syntax, or one that is too large, is refused`(pattern: String) {
        #expect(throws: RegularExpressionError.self) { try RegularExpression(pattern) }
    }

    /// With backtracking this takes longer than the age of the universe.
    @Test func `A nested repetition takes linear time`() throws {
        let text = String(repeating: "a", count: RegularExpression.longestText - 1)
        #expect(try matches("^(a+)+$", text + "b") == false)
        #expect(try matches("^(a+)+$", text + "a") == true)
        #expect(try matches("a", text + "aa") == nil)
    }
}
