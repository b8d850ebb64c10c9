public import JSON

/// How long users keep a variation after it was last saved: a setting of an experiment, or of the whole project.
public struct AssignmentLifetime: Sendable, Equatable {
    /// The text that was given, such as `30d` or `forever`.
    public let text: String
    /// The lifetime, from one second to 3660 days; `nil` if users keep their variation forever.
    public let milliseconds: Int64?

    /// The name of the member in the ``Annotations`` of an experiment and of a datafile.
    public static let member = "assignmentTTL"
    private static let forever = "forever"
    private static let allowed: ClosedRange<Int64> = 1_000...3_660 * 86_400_000

    /// Describes the valid texts, for error messages.
    public static let form = "a time from 1s to 3660d such as 12h or 30d, or '\(forever)'"

    /// - Returns: `nil` if the text does not have the ``form``.
    public init?(_ text: String) {
        self.text = text
        milliseconds = Self.milliseconds(text)
        guard text == Self.forever || milliseconds.map(Self.allowed.contains) == true else { return nil }
    }

    /// Reads the lifetime from annotations.
    ///
    /// - Returns: `nil` if there is none, or if it does not have the ``form``.
    public init?(_ annotations: JSONObject?) {
        guard let text = annotations?[Self.member]?.string else { return nil }
        self.init(text)
    }

    private static let units: [(suffix: Character, milliseconds: Int64)] = [
        ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    /// Parses a number with a unit, such as `90s`, `30m`, `12h` or `2d`, and returns it in milliseconds; `nil` if the
    /// text has another format, or the result does not fit.
    package static func milliseconds(_ text: String) -> Int64? {
        guard let unit = units.first(where: { $0.suffix == text.last }) else { return nil }
        let digits = text.dropLast()
        guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int64(digits) else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.milliseconds)
        return overflow ? nil : product
    }
}

extension Datafile {
    /// Returns how long users keep a variation of an experiment: the setting of the experiment, or else of the project;
    /// `nil` if neither has one.
    public func assignmentLifetime(of experiment: Experiment) -> AssignmentLifetime? {
        experiment.annotations.assignmentLifetime ?? assignmentLifetime
    }
}
