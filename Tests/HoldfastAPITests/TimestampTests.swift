import Storage
import Testing

@testable import HoldfastAPI

@Suite struct TimestampTests {
    @Test(arguments: [
        ("1970-01-01T00:00:00Z", 0), ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31t13:00:00.5+01:00", 1_769_860_800_500), ("2026-01-31T06:30:00.1239-05:30", 1_769_860_800_123),
        ("1969-12-31T23:59:59.999z", -1), ("2016-12-31T23:59:60Z", 1_483_228_799_000), ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ])
    func `A time of RFC 3339 is read`(text: String, expected: Timestamp) {
        #expect(Timestamp(rfc3339: text) == expected)
    }

    @Test(arguments: [
        "", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z",
        "2025-02-29T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:61Z", "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00+0100", "2026-01-31T12:00:00Zx", "2026-1-31T12:00:00Z", "２026-01-31T12:00:00Z", "2026-00-01T00:00:00Z",
    ])
    func `Anything else is not`(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    @Test func `What is written is read again`() {
        for moment: Timestamp in [0, -1, 1_769_860_800_123, 253_402_300_799_999] {
            #expect(Timestamp(rfc3339: moment.rfc3339) == moment)
        }
    }
}
