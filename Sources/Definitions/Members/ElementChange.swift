public import Chronology
public import JSON

/// The body of a `PUT`: what an admin defines of an element.
public protocol ElementChange: Sendable {
    init(_ value: JSONValue, key: String) throws(CoreError)

    /// The conditions that the body has, and where.
    var audiences: [(conditions: JSONValue, place: JSONPointer)] { get }

    /// The percentage of users who are enrolled, if the body has it.
    var traffic: Double? { get }

    /// What the body most likely does unmeant.
    ///
    /// - Parameter former: the element as `GET` presented it; `nil` for a new one.
    func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning]

    /// - Returns: whether the element is new.
    func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool
}

extension ElementChange {
    public var traffic: Double? { nil }

    public func warnings(changing former: JSONValue?, at now: Instant) -> [DefinitionWarning] { [] }

    /// A traffic that was most likely meant as a fraction.
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
        /// The server has made the secret of a webhook.
        case secretMade = "secret_made"
        /// Who may not see webhooks is not told how they differ.
        case webhooksNotCompared = "webhooks_not_compared"
        /// A draft starts at once, because its time has passed.
        case startInPast = "start_in_past"
        /// Variations without weights replace some that had others than equal ones.
        case weightsReset = "weights_reset"

        /// Those of one definition; the others are of files of definitions.
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
