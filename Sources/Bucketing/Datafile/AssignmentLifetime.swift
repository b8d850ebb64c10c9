public import Chronology
public import JSON

/// How long users keep an assigned variation after it was last saved: a setting of an experiment, or of the whole
/// project. The JSON is `"assignmentTTL": "30d"`.
public struct AssignmentLifetime: Sendable, Equatable {
    /// The text that was given, such as `30d` or `forever`.
    public let text: String
    /// The lifetime, from one second to 3660 days; `nil` if users keep their variation forever.
    public let span: TimeSpan?

    /// The name of the member in the ``Annotations`` of an experiment and of a datafile.
    public static let member = "assignmentTTL"
    private static let forever = "forever"
    private static let allowed = TimeSpan.seconds(1)...TimeSpan.days(3_660)

    /// Describes the valid texts, for error messages.
    public static let form = "a time from 1s to 3660d such as 12h or 30d, or '\(forever)'"

    /// - Returns: `nil` if the text does not have the ``form``.
    public init?(_ text: String) {
        self.text = text
        span = TimeSpan(text)
        guard text == Self.forever || span.map(Self.allowed.contains) == true else { return nil }
    }

    /// Reads the lifetime from annotations.
    ///
    /// - Returns: `nil` if there is none, or if it does not have the ``form``.
    public init?(_ annotations: JSONObject?) {
        guard let text = annotations?[Self.member]?.string else { return nil }
        self.init(text)
    }
}

extension Datafile {
    /// Returns the assignment lifetime of an experiment: that of the experiment itself, or else that of the project;
    /// `nil` if neither defines one.
    public func assignmentLifetime(of experiment: Experiment) -> AssignmentLifetime? {
        experiment.annotations.assignmentLifetime ?? assignmentLifetime
    }
}
