import Chronology

// The types of settings that are numbers with a unit or a range. Each reads the text that a person writes, and
// describes itself in the same form.

/// A number from 0 to 1.
struct Probability: Setting {
    let value: Double

    init?(setting: String) {
        // `Double` would also accept `0x1`, `1e-3` and `nan`.
        guard setting.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }), let value = Double(setting), value <= 1
        else { return nil }
        self.value = value
    }

    static let form = "a number from 0 to 1, such as 0.05"
}

/// A time such as `500ms`, `10s`, `15m`, `12h` or `90d`.
struct Period: Comparable {
    let seconds: Double

    /// The time as the type that the stores use.
    var span: TimeSpan { TimeSpan(seconds: seconds) }

    init(seconds: Double) {
        self.seconds = seconds
    }

    init?(setting: String) {
        for unit in Self.units where setting.hasSuffix(unit.suffix) {
            let digits = setting.dropLast(unit.suffix.count)
            // `Double` would also accept `0x10` and `1e3`.
            guard digits.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }), let number = Double(digits),
                number * unit.seconds <= Self.longest.seconds
            else { continue }
            seconds = number * unit.seconds
            return
        }
        return nil
    }

    /// One millisecond, the smallest unit.
    static let shortest = Period(seconds: 0.001)
    /// A hundred years.
    static let longest = Period(seconds: 86_400 * 36_500)

    static func < (left: Period, right: Period) -> Bool { left.seconds < right.seconds }

    /// The units, the smallest first.
    private static let units: [(suffix: String, seconds: Double)] = [
        ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400),
    ]
}

extension Period: CustomStringConvertible {
    /// The time in the largest unit of which it is a whole number, such as `15m`.
    var description: String {
        let largest = Self.units.last { unit in
            unit.seconds >= 1 && seconds >= unit.seconds && seconds.remainder(dividingBy: unit.seconds) == 0
        }
        return largest.map { "\(Int(seconds / $0.seconds))\($0.suffix)" } ?? "\(span.milliseconds)ms"
    }
}

/// A size such as `512`, `16KiB` or `64MiB`.
struct ByteCount: Equatable {
    static let KiB = 1 << 10
    static let MiB = 1 << 20
    static let GiB = 1 << 30
    static let TiB = 1 << 40

    let bytes: Int

    init(bytes: Int) {
        self.bytes = bytes
    }

    init?(setting: String) {
        for unit in Self.units where setting.hasSuffix(unit.suffix) {
            guard let number = Int(setting.dropLast(unit.suffix.count)), number >= 0,
                number <= Self.largestNumber || unit.bytes == 1
            else { continue }
            bytes = number * unit.bytes
            return
        }
        return nil
    }

    /// The largest number before a unit, so that the product does not overflow.
    private static let largestNumber = 1 << 20
    /// The units, the largest first. The last one is the byte, without a suffix.
    private static let units: [(suffix: String, bytes: Int)] = [("GiB", GiB), ("MiB", MiB), ("KiB", KiB), ("", 1)]
}

extension ByteCount: CustomStringConvertible {
    /// The size in the largest unit of which it is a whole number, such as `64MiB`.
    var description: String {
        let unit = Self.units.first { bytes > 0 && bytes % $0.bytes == 0 }
        return unit.map { "\(bytes / $0.bytes)\($0.suffix)" } ?? "\(bytes)"
    }
}
