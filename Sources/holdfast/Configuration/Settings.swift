import ArgumentParser

/// Reads settings, each from its command line option or else from its environment variable, and leaves the default
/// where neither is given.
struct Settings {
    let environment: [String: String]

    /// Takes over a text setting.
    func apply(_ option: String?, _ name: String, to value: inout String) {
        if let given = text(option, name) { value = given }
    }

    /// Takes over a text setting that has no default.
    func apply(_ option: String?, _ name: String, to value: inout String?) {
        if let given = text(option, name) { value = given }
    }

    /// Takes over a setting that is written as a text.
    ///
    /// - Throws: ``Failure``, naming the setting and what it should look like.
    func apply<Value: Setting>(_ option: String?, _ name: String, to value: inout Value) throws {
        guard let given = text(option, name) else { return }
        guard let parsed = Value(setting: given) else {
            throw Failure("\(origin(option, name)): '\(given)' is not \(Value.form)")
        }
        value = parsed
    }

    /// Takes over a number in a range.
    func apply(_ option: String?, _ name: String, in range: ClosedRange<Int>, to value: inout Int) throws {
        guard let given = text(option, name) else { return }
        guard let number = Int(given), range.contains(number) else {
            throw Failure(
                "\(origin(option, name)): '\(given)' is not a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
        value = number
    }

    /// Takes over a size in a range of bytes.
    func apply(_ option: String?, _ name: String, in range: ClosedRange<Int>, to value: inout ByteCount) throws {
        try apply(option, name, to: &value)
        guard range.contains(value.bytes) else {
            let (least, most) = (ByteCount(bytes: range.lowerBound), ByteCount(bytes: range.upperBound))
            throw Failure("\(origin(option, name)): a size from \(least) to \(most) is wanted")
        }
    }

    /// Takes over a switch: the option sets it, the variable sets it with `true` or `1`.
    func apply(_ option: Bool, _ name: String, to value: inout Bool) throws {
        if option {
            value = true
        } else if let given = environment[Self.variable(name)] {
            switch given.lowercased() {
            case "true", "1": value = true
            case "false", "0", "": value = false
            default: throw Failure("\(Self.variable(name)): '\(given)' is not 'true' or 'false'")
            }
        }
    }

    private func text(_ option: String?, _ name: String) -> String? {
        option ?? environment[Self.variable(name)].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// What a message calls a setting: as it was given.
    private func origin(_ option: String?, _ name: String) -> String {
        option == nil ? Self.variable(name) : "--\(name)"
    }

    /// `assignment-ttl` is `HOLDFAST_ASSIGNMENT_TTL`.
    static func variable(_ name: String) -> String {
        "HOLDFAST_" + name.uppercased().replacing("-", with: "_")
    }
}

/// A value that is written as a text on the command line.
protocol Setting {
    init?(setting: String)
    /// What such a text looks like, for the error message.
    static var form: String { get }
}

/// A time such as `500ms`, `10s`, `15m`, `12h` or `90d`.
struct Period: Setting, Equatable {
    let seconds: Double

    var milliseconds: Int64 { Int64(seconds * 1_000) }

    init(seconds: Double) {
        self.seconds = seconds
    }

    init?(setting: String) {
        let units: [(suffix: String, seconds: Double)] = [("ms", 0.001), ("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        for unit in units where setting.hasSuffix(unit.suffix) {
            let digits = setting.dropLast(unit.suffix.count)
            // `Double` would read `0x10` and `1e3` as well.
            guard digits.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }), let number = Double(digits),
                (0.001...Self.longest).contains(number * unit.seconds)
            else { continue }
            seconds = number * unit.seconds
            return
        }
        return nil
    }

    /// A hundred years.
    private static let longest = 3_600.0 * 24 * 365 * 100

    static let form = "a time such as 500ms, 10s, 15m, 12h or 90d"
}

/// A size such as `512`, `16KiB` or `64MiB`.
struct ByteCount: Setting, Equatable {
    static let (KiB, MiB, GiB, TiB) = (1 << 10, 1 << 20, 1 << 30, 1 << 40)

    let bytes: Int

    init(bytes: Int) {
        self.bytes = bytes
    }

    init?(setting: String) {
        for unit in Self.units where setting.hasSuffix(unit.suffix) {
            guard let number = Int(setting.dropLast(unit.suffix.count)), (0...1 << 20).contains(number) || unit.bytes == 1,
                number >= 0
            else { continue }
            bytes = number * unit.bytes
            return
        }
        return nil
    }

    static let form = "a size such as 512, 16KiB or 64MiB"

    private static let units = [("GiB", GiB), ("MiB", MiB), ("KiB", KiB), ("", 1)].map { (suffix: $0, bytes: $1) }
}

extension ByteCount: CustomStringConvertible {
    var description: String {
        let unit = Self.units.first { bytes > 0 && bytes % $0.bytes == 0 }
        return unit.map { "\(bytes / $0.bytes)\($0.suffix)" } ?? "\(bytes)"
    }
}
