public import JSON

/// A value of an attribute as conditions look at it: out of a request's JSON or out of a stored record. Each answer is
/// `nil` if the value is of another kind.
public protocol ConditionOperand {
    var isNull: Bool { get }
    var bool: Bool? { get }
    /// A number from -2^53 to 2^53; the reference SDK takes no other.
    var usableNumber: Double? { get }
    var text: String? { get }
    /// Whether the text, or one of several, has these bytes.
    func equals(_ text: String) -> Bool?
    /// Whether the text, or one of several, has these bytes in it.
    func contains(_ text: String) -> Bool?
    /// Below, at or above 0 as this point in time is before, at or after another that is written in the same form.
    func momentOrder(to text: String) -> Int?
}

extension ConditionOperand {
    @inlinable
    public static func usable(_ number: Double) -> Double? {
        abs(number) <= Double(1 << 53) ? number : nil
    }
}

extension JSONValue: ConditionOperand {
    public var usableNumber: Double? {
        switch self {
        case .integer(let integer): integer.magnitude <= 1 << 53 ? Double(integer) : nil
        case .number(let number): Self.usable(number)
        default: nil
        }
    }

    public var text: String? { string }

    public func equals(_ text: String) -> Bool? {
        string.map { $0.hasSameBytes(as: text) }
    }

    public func contains(_ text: String) -> Bool? {
        string.map { $0.containsBytes(of: text) }
    }

    public func momentOrder(to text: String) -> Int? { nil }
}
