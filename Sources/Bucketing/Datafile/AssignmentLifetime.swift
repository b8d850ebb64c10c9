public import JSON

/// How long users keep a variation after it was last saved, as an experiment or a project says.
public struct AssignmentLifetime: Sendable, Equatable {
    /// As it was given, such as `30d`, or `forever`.
    public let text: String
    /// `nil` for ever.
    public let milliseconds: Int64?

    /// The member of the ``Annotations`` of an experiment and of a datafile.
    public static let member = "assignmentTTL"
    private static let forever = "forever"
    private static let allowed: ClosedRange<Int64> = 1_000...3_660 * 86_400_000

    /// What a text must be, for error messages.
    public static let form = "a time from 1s to 3660d such as 12h or 30d, or '\(forever)'"

    /// - Returns: `nil` if the text is not of the ``form``.
    public init?(_ text: String) {
        self.text = text
        milliseconds = Self.milliseconds(text)
        guard text == Self.forever || milliseconds.map(Self.allowed.contains) == true else { return nil }
    }

    /// Reads annotations; what is not of the ``form`` counts as absent.
    public init?(_ annotations: JSONObject?) {
        guard let text = annotations?[Self.member]?.string else { return nil }
        self.init(text)
    }

    private static let units: [(suffix: Character, milliseconds: Int64)] = [
        ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    /// Returns the milliseconds of a text such as `90s`, `30m`, `12h` or `2d`; `nil` for another one.
    package static func milliseconds(_ text: String) -> Int64? {
        guard let unit = units.first(where: { $0.suffix == text.last }) else { return nil }
        let digits = text.dropLast()
        guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int64(digits) else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.milliseconds)
        return overflow ? nil : product
    }
}

extension Datafile {
    /// How long users keep a variation of an experiment: what the experiment says, or else the project; `nil` if neither
    /// does.
    public func assignmentLifetime(of experiment: Experiment) -> AssignmentLifetime? {
        experiment.annotations.assignmentLifetime ?? assignmentLifetime
    }
}
