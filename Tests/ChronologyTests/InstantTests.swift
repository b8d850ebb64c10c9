import Chronology
import Foundation
import TestSupport
import Testing

@Suite struct InstantTests {
    @Test(arguments: [
        ("1970-01-01T00:00:00Z", 0), ("2026-01-31T12:00:00.123Z", 1_769_860_800_123),
        ("2024-02-29T23:59:59.9999Z", 1_709_251_199_999),
        ("2026-01-31t13:30:00.5+01:30", 1_769_860_800_500), ("1969-12-31T23:59:59.000-00:00", -1_000),
        ("2000-02-29 00:00:00z", 951_782_400_000), ("2026-01-31T12:00:00.1234567890Z", 1_769_860_800_123),
        ("0000-01-01T00:00:00-00:01", -62_167_219_140_000), ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ])
    func `A time of RFC 3339 is read`(text: String, expected: Instant) {
        #expect(Instant(rfc3339: text) == expected)
    }

    @Test(arguments: [
        "", "2026-01-31", "2026-01-31T12:00:00", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00+1:00", "2026-01-31T12:00:00Z ", "+026-01-31T12:00:00Z",
        "2026-01-31T12:00:00+24:00", "2026-1-31T12:00:00Z", "0000-01-01T00:00:00+00:01", "9999-12-31T23:59:00-00:01",
        "10000-01-01T00:00:00Z", "-001-01-01T00:00:00Z",
    ])
    func `Anything else is not`(text: String) {
        #expect(Instant(rfc3339: text) == nil)
    }

    @Test func `Any number of milliseconds has a text`() {
        #expect(Instant(milliseconds: 1_769_860_800_007).rfc3339 == "2026-01-31T12:00:00.007Z")
        #expect(Instant(milliseconds: -1).rfc3339 == "1969-12-31T23:59:59.999Z")
        #expect(Instant(milliseconds: -62_135_596_800_001).rfc3339 == "0000-12-31T23:59:59.999Z")
        #expect(Instant(day: -719_528).rfc3339 == "0000-01-01T00:00:00.000Z")
        #expect(Instant.distantFuture.rfc3339 == "292278994-08-17T07:12:55.807Z")
        #expect(Instant.distantPast.rfc3339 == "-292275055-05-16T16:47:04.192Z")
    }

    @Test func `The text has the date and time of the C library`() {
        var random = SeededGenerator(seed: 1)
        for time in Self.randomTimes(2_000, &random) {
            let (seconds, milliseconds) = (
                (Double(time.milliseconds) / 1_000).rounded(.down), (time.milliseconds % 1_000 + 1_000) % 1_000
            )
            // Exact: the numbers of seconds are below 2^53.
            var wholeSeconds = time_t(seconds)
            if Int64(wholeSeconds) * 1_000 + milliseconds != time.milliseconds { wholeSeconds -= 1 }
            var parts = tm()
            gmtime_r(&wholeSeconds, &parts)
            func padded(_ number: Int, _ width: Int) -> String {
                let digits = String(number.magnitude)
                return (number < 0 ? "-" : "") + String(repeating: "0", count: max(0, width - digits.count)) + digits
            }
            let date = [(parts.tm_year + 1_900, 4), (parts.tm_mon + 1, 2), (parts.tm_mday, 2)]
            let clock = [(parts.tm_hour, 2), (parts.tm_min, 2), (parts.tm_sec, 2)]
            let expected =
                date.map { padded(Int($0.0), $0.1) }.joined(separator: "-") + "T"
                + clock.map { padded(Int($0.0), $0.1) }.joined(separator: ":") + "." + padded(Int(milliseconds), 3)
                + "Z"
            #expect(time.rfc3339 == expected)
            #expect(time.date == expected.prefix { $0 != "T" })
        }
    }

    @Test func `What is written is read back, and texts sort as their times do`() {
        var random = SeededGenerator(seed: 2)
        let years: ClosedRange<Int64> = -62_167_219_200_000...253_402_300_799_999
        let times = (0..<5_000).map { _ in Instant(milliseconds: .random(in: years, using: &random)) }.sorted()
        for time in times + [Instant(milliseconds: years.lowerBound), Instant(milliseconds: years.upperBound)] {
            #expect(Instant(rfc3339: time.rfc3339) == time)
        }
        #expect(times.map(\.rfc3339) == times.map(\.rfc3339).sorted())
        #expect(Instant(rfc3339: Instant(milliseconds: years.lowerBound - 1).rfc3339) == nil)
        #expect(Instant(rfc3339: Instant(milliseconds: years.upperBound + 1).rfc3339) == nil)
    }

    @Test func `Every day has its number, and every number its day`() throws {
        var former: Instant?
        for day in Int64(-719_528)...2_932_896 {
            let midnight = Instant(day: day)
            guard midnight.day == day, (midnight + .milliseconds(86_399_999)).day == day else {
                Issue.record("\(midnight)")
                return
            }
            // Of most days the text is not made, which takes longest.
            guard day % 997 == 0 else { continue }
            #expect(Instant(rfc3339: "\(midnight.date)T00:00:00Z") == midnight)
            if let former { #expect(former < midnight) }
            former = midnight
        }
    }

    @Test func `Arithmetic is exact, or stops at the first or last of all times`() {
        var random = SeededGenerator(seed: 3)
        let times = Self.randomTimes(60, &random) + [.distantPast, .distantFuture, .epoch]
        for (left, right) in times.flatMap({ left in times.map { (left, $0) } }) {
            let span = TimeSpan(milliseconds: right.milliseconds)
            let (first, second) = (Int128(left.milliseconds), Int128(right.milliseconds))
            #expect((left + span).milliseconds == Int64(clamping: first + second))
            #expect((left - span).milliseconds == Int64(clamping: first - second))
            #expect((left - right).milliseconds == Int64(clamping: first - second))
            #expect((left < right) == (first < second) && (left == right) == (first == second))
        }
        #expect(Instant(day: .max) == .distantFuture && Instant(day: .min) == .distantPast)
        #expect(Instant(secondsSince1970: .max) == .distantFuture)
        #expect(Instant.distantFuture.day == 106_751_991_167 && Instant.distantPast.day == -106_751_991_168)
        #expect(Instant(milliseconds: -1_999).secondsSince1970 == -1)
    }

    /// Times of all magnitudes.
    private static func randomTimes(_ count: Int, _ random: inout SeededGenerator) -> [Instant] {
        (0..<count).map { index in
            Instant(milliseconds: Int64.random(in: .min ... .max, using: &random) >> Int64(index % 63))
        }
    }
}

@Suite struct TimeSpanTests {
    @Test(
        arguments: [
            (TimeSpan.milliseconds(5), 5), (.seconds(90), 90_000), (.minutes(2), 120_000), (.hours(-1), -3_600_000),
            (.days(7), 604_800_000), (.days(.max), .max), (.days(.min), .min), (.zero, 0),
            (TimeSpan(seconds: 0.0015), 2), (TimeSpan(seconds: .infinity), .max), (TimeSpan(seconds: -.infinity), .min),
            (TimeSpan(seconds: .nan), 0), (TimeSpan(days: 0.5), 43_200_000), (TimeSpan(days: 1e300), .max),
            (TimeSpan(.seconds(3)), 3_000), (TimeSpan(.nanoseconds(-1_999_999)), -1),
            (TimeSpan(Duration(secondsComponent: .max, attosecondsComponent: 0)), .max),
            (TimeSpan(Duration(secondsComponent: .min, attosecondsComponent: -1)), .min),
        ] as [(TimeSpan, Int64)])
    func `Every unit is a number of milliseconds`(span: TimeSpan, milliseconds: Int64) {
        #expect(span.milliseconds == milliseconds)
    }

    @Test(
        arguments: [
            ("90s", .seconds(90)), ("30m", .minutes(30)), ("12h", .hours(12)), ("2d", .days(2)), ("0s", .zero),
            ("106751991167d", .days(106_751_991_167)),
            ("106751991168d", nil), ("99999999999999999999s", nil), ("", nil), ("d", nil), ("5", nil), ("-1d", nil),
            ("1.5h", nil), ("+1d", nil), ("1 d", nil), ("1w", nil), ("١d", nil),
        ] as [(String, TimeSpan?)])
    func `A number with its unit is read`(text: String, span: TimeSpan?) {
        #expect(TimeSpan(text) == span)
    }

    @Test func `Arithmetic is exact, or stops at the shortest or longest of all spans`() {
        var random = SeededGenerator(seed: 4)
        let numbers =
            (0..<60).map { Int64.random(in: .min ... .max, using: &random) >> Int64($0) } + [.min, .max, 0, -1]
        for (left, right) in numbers.flatMap({ left in numbers.map { (left, $0) } }) {
            let (first, second) = (TimeSpan.milliseconds(left), TimeSpan.milliseconds(right))
            #expect((first + second).milliseconds == Int64(clamping: Int128(left) + Int128(right)))
            #expect((first - second).milliseconds == Int64(clamping: Int128(left) - Int128(right)))
            #expect((first * right).milliseconds == Int64(clamping: Int128(left) * Int128(right)))
            #expect((-first).milliseconds == Int64(clamping: -Int128(left)))
            #expect((first < second) == (left < right))
        }
        #expect(TimeSpan.days(3).inDays == 3 && TimeSpan.minutes(3).inSeconds == 180)
    }
}
