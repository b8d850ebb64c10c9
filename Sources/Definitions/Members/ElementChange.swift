public import Chronology
public import JSON

/// The parsed body of a `PUT`, which creates or changes an element. Members that the body lacks keep their values.
public protocol ElementChange: Sendable {
    /// Parses a body.
    ///
    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    init(_ value: JSONValue, key: String) throws(CoreError)

    /// The audience conditions in the body, each with its location.
    var audiences: [(conditions: JSONValue, place: JSONPointer)] { get }

    /// The percentage of users to enroll; `nil` if the body lacks it.
    var traffic: Double? { get }

    /// Returns warnings about effects that the author of the body most likely did not intend.
    ///
    /// - Parameter former: the element as `GET` showed it before the change; `nil` for a new one.
    func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning]

    /// Creates or changes the element in a project.
    ///
    /// - Returns: whether the element is new.
    func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool
}

extension ElementChange {
    public var traffic: Double? { nil }

    public func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning] { [] }

    /// A warning about a traffic below 1, which was most likely meant as a fraction and not as a percentage.
    package var trafficWarnings: [DefinitionWarning] {
        guard let traffic, 0 < traffic, traffic < 1 else { return [] }
        let meant = ((traffic * 1e4).rounded() / 100).shortest
        let reason =
            "`traffic` is a percentage: \(traffic.shortest) is \(traffic.shortest)% of the users; if \(meant)% are meant, "
            + "write \(meant)"
        return [
            DefinitionWarning(
                code: .trafficBelowOne, fault: JSONFault(pointer: JSONPointer().appending("traffic"), reason: reason))
        ]
    }
}

/// A warning about a definition that is accepted.
public struct DefinitionWarning: Sendable, CustomStringConvertible {
    public enum Code: String, Sendable, CaseIterable {
        /// No user can meet a condition.
        case conditionNeverMet = "condition_never_met"
        /// A percentage was most likely meant as a fraction.
        case trafficBelowOne = "traffic_below_one"
        /// A change has no effect until an experiment runs.
        case notRunning = "not_running"
        /// The server has generated the secret of a webhook.
        case secretMade = "secret_made"
        /// Webhooks were not compared, because the caller may not see them.
        case webhooksNotCompared = "webhooks_not_compared"
        /// A draft starts at once, because its start time has passed.
        case startInPast = "start_in_past"
        /// The variations are given without weights, so their former, unequal weights become equal.
        case weightsReset = "weights_reset"

        /// The codes that a change of one element can cause. The others occur only when a file of definitions is
        /// applied.
        public static let ofOne: [Code] = [.conditionNeverMet, .trafficBelowOne, .startInPast, .weightsReset]
    }

    public var code: Code
    public var fault: JSONFault

    public init(code: Code, fault: JSONFault) {
        self.code = code
        self.fault = fault
    }

    public var description: String { fault.description }
}
