import Bucketing
import Chronology
import Testing

@Suite struct AssignmentLifetimeTests {
    @Test(
        arguments: [
            ("1s", 1_000), ("90s", 90_000), ("30m", 1_800_000), ("12h", 43_200_000), ("30d", 2_592_000_000),
            ("3660d", 316_224_000_000), ("forever", nil),
        ] as [(String, Int64?)])
    func `A time has a unit, and forever is one`(text: String, milliseconds: Int64?) throws {
        let lifetime = try #require(AssignmentLifetime(text))
        #expect(lifetime.span?.milliseconds == milliseconds && lifetime.text == text)
    }

    @Test(arguments: [
        "", "0s", "5", "d", "-1d", "+1d", "1.5d", " 1d", "1D", "1w", "3661d", "9223372036854775807d",
        "99999999999999999999s", "Forever", "\u{0661}d",
    ])
    func `Anything else is none`(text: String) {
        #expect(AssignmentLifetime(text) == nil)
    }
}
