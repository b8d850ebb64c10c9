import Storage
import Testing

@Suite struct TimestampTests {
    @Test(arguments: [
        ("1970-01-01T00:00:00Z", 0), ("2026-01-31T12:00:00.123Z", 1_769_860_800_123),
        ("2024-02-29T23:59:59.9999Z", 1_709_251_199_999),
        ("2026-01-31t13:30:00.5+01:30", 1_769_860_800_500), ("1969-12-31T23:59:59.000-00:00", -1_000),
        ("2000-02-29 00:00:00z", 951_782_400_000), ("2026-01-31T12:00:00.1234567890Z", 1_769_860_800_123),
    ])
    func `A time of RFC 3339 is read`(text: String, expected: Timestamp) {
        #expect(Timestamp(rfc3339: text) == expected)
    }

    @Test(arguments: [
        "", "2026-01-31", "2026-01-31T12:00:00", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00+1:00", "2026-01-31T12:00:00Z ", "+026-01-31T12:00:00Z",
        "2026-01-31T12:00:00+24:00", "2026-1-31T12:00:00Z",
    ])
    func `Anything else is not`(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    @Test func `Any number of milliseconds has a text`() {
        #expect(Timestamp(1_769_860_800_007).rfc3339 == "2026-01-31T12:00:00.007Z")
        #expect(Timestamp(-62_135_596_800_001).rfc3339 == "0000-12-31T23:59:59.999Z")
        #expect(Timestamp.max.rfc3339 == "292278994-08-17T07:12:55.807Z")
        #expect(Timestamp.min.rfc3339 == "-292275055-05-16T16:47:04.192Z")
    }

    @Test func `What is written is read back`() {
        for time: Timestamp in [0, -1, 951_782_399_999, 1_709_164_800_000, 4_102_444_800_001] {
            #expect(Timestamp(rfc3339: time.rfc3339) == time)
        }
    }
}
