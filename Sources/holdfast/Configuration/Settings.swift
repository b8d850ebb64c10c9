import ArgumentParser
import Chronology
import Definitions
import HoldfastCore

/// Reads settings: each from its command line option, or else from its environment variable. If neither is given, the
/// default stays.
///
/// ArgumentParser's `ExpressibleByArgument` supports options only. These settings also come from the environment, and
/// have ranges. Errors name the option or the variable, whichever was given.
final class Settings {
    let environment: [String: String]
    /// The names of all settings read so far, whether given or not. Other variables are unknown.
    private(set) var names: Set<String> = []

    init(environment: [String: String]) {
        self.environment = environment
    }

    /// Reads a text.
    ///
    /// - Parameters:
    ///   - option: the value of the option; `nil` if it is not given.
    ///   - name: the name of the setting, such as `log-level`.
    ///   - value: the default, which a given setting replaces.
    func apply(_ option: String?, _ name: String, to value: inout String) {
        if let given = text(option, name) { value = given }
    }

    /// Reads a text without a default.
    func apply(_ option: String?, _ name: String, to value: inout String?) {
        if let given = text(option, name) { value = given }
    }

    /// Reads a setting of any type.
    ///
    /// - Throws: ``Failure`` with the name of the setting, what is required and what was found. So do all methods
    ///   below.
    func apply<Value: Setting>(_ option: String?, _ name: String, to value: inout Value) throws {
        try apply(option, name, Value.form, to: &value) { Value(setting: $0) }
    }

    /// Reads a setting without a default.
    func apply<Value: Setting>(_ option: String?, _ name: String, to value: inout Value?) throws {
        try apply(option, name, Value.form, to: &value) { text in Value(setting: text).map { .some($0) } }
    }

    /// Reads a time in seconds; `0` and `0s` mean none. They are shorter than the shortest ``Period``, so they are read
    /// separately.
    func apply(orNone option: String?, _ name: String, to seconds: inout Double) throws {
        if let given = text(option, name), ["0", "0s"].contains(given) {
            seconds = 0
        } else {
            try apply(option, name, to: &seconds)
        }
    }

    /// Reads a number in a range.
    func apply(_ option: String?, _ name: String, in range: ClosedRange<Int>, to value: inout Int) throws {
        let form = "a whole number from \(range.lowerBound) to \(range.upperBound)"
        try apply(option, name, form, to: &value) { Int($0).flatMap { range.contains($0) ? $0 : nil } }
    }

    /// Reads a size in a range of bytes.
    func apply(_ option: String?, _ name: String, in range: ClosedRange<Int>, to value: inout ByteCount) throws {
        let minimum = ByteCount(bytes: range.lowerBound)
        let maximum = ByteCount(bytes: range.upperBound)
        try apply(option, name, "a size from \(minimum) to \(maximum), such as 16KiB or 64MiB", to: &value) {
            ByteCount(setting: $0).flatMap { range.contains($0.bytes) ? $0 : nil }
        }
    }

    /// Reads a time in a range.
    func apply(
        _ option: String?, _ name: String, in range: ClosedRange<Period> = Period.shortest...Period.longest,
        to value: inout Period
    ) throws {
        let form = "a time from \(range.lowerBound) to \(range.upperBound), such as 500ms, 10s, 15m, 12h or 90d"
        try apply(option, name, form, to: &value) { Period(setting: $0).flatMap { range.contains($0) ? $0 : nil } }
    }

    /// Reads a time in a range, in seconds.
    func apply(
        _ option: String?, _ name: String, in range: ClosedRange<Period> = Period.shortest...Period.longest,
        to seconds: inout Double
    ) throws {
        var period = Period(seconds: seconds)
        try apply(option, name, in: range, to: &period)
        seconds = period.seconds
    }

    /// Reads a switch. The option turns it on; a variable may turn it on or off.
    func apply(_ option: Bool, _ name: String, to value: inout Bool) throws {
        try apply(option ? "true" : nil, name, "yes, no, true, false, 1 or 0", to: &value) { given in
            switch given.lowercased() {
            case "yes", "true", "1": true
            case "no", "false", "0": false
            default: nil
            }
        }
    }

    /// Parses a given text.
    ///
    /// - Parameters:
    ///   - form: the description of valid values, for the error.
    ///   - parse: returns the value of a text; `nil` if it is invalid.
    private func apply<Value>(
        _ option: String?, _ name: String, _ form: @autoclosure () -> String, to value: inout Value,
        parse: (String) -> Value?
    ) throws {
        guard let given = text(option, name) else { return }
        guard let parsed = parse(given) else {
            throw Failure("\(origin(option, name)) must be \(form()); got '\(given)'")
        }
        value = parsed
    }

    /// Returns the given text of a setting, and notes that the setting exists. An empty variable counts as not given.
    ///
    /// - Returns: `nil` if neither the option nor the variable is given.
    private func text(_ option: String?, _ name: String) -> String? {
        names.insert(name)
        return option ?? environment[Self.variable(name)].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// The name of a setting in messages: the option or the variable, whichever was given.
    private func origin(_ option: String?, _ name: String) -> String {
        option == nil ? Self.variable(name) : "--\(name)"
    }

    /// The beginning of the environment variables of all settings.
    static let prefix = "HOLDFAST_"

    /// Returns the environment variable of a setting: `HOLDFAST_ASSIGNMENT_TTL` for `assignment-ttl`.
    static func variable(_ name: String) -> String {
        prefix + name.uppercased().replacing("-", with: "_")
    }
}

/// A value that is read from one text.
protocol Setting {
    init?(setting: String)
    /// The description of valid values, for error messages.
    static var form: String { get }
}

/// An environment variable that begins with `HOLDFAST_`, but is not the name of a setting.
struct UnknownVariable {
    let name: String
    /// The most similar known variable; `nil` if none is similar.
    let nearest: String?
}

extension Settings {
    /// Returns the environment variables that begin with `HOLDFAST_`, but are not names of settings.
    ///
    /// - Parameter others: the names of further settings.
    func unknownVariables(besides others: [String]) -> [UnknownVariable] {
        let known = names.union(others).map(Self.variable)
        return environment.keys.filter { $0.hasPrefix(Self.prefix) && !known.contains($0) && !isOfKubernetes($0) }
            .sorted().map { name in
                // Compared without the prefix, which all names share.
                let nearest = Spelling.nearest(
                    to: String(name.dropFirst(Self.prefix.count)),
                    among: known.sorted().map { String($0.dropFirst(Self.prefix.count)) })
                return UnknownVariable(name: name, nearest: nearest.map { Self.prefix + $0 })
            }
    }

    /// Whether Kubernetes sets the variable for a service called `holdfast`.
    private func isOfKubernetes(_ variable: String) -> Bool {
        guard environment["HOLDFAST_SERVICE_HOST"] != nil else { return false }
        return variable == "HOLDFAST_PORT" || variable.hasPrefix("HOLDFAST_PORT_")
            || variable.hasPrefix("HOLDFAST_SERVICE_")
    }
}
