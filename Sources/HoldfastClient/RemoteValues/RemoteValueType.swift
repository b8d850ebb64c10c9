/// A type a remote value can have: `String`, `Bool`, and each enum of strings that says it is one.
///
/// ```swift
/// enum Layout: String, RemoteValueType {
///     case grid, list
/// }
/// ```
///
/// A remote string that is none of the enum's raw values is an incorrect value; see ``RemoteValueHooks``.
public protocol RemoteValueType: Sendable, Equatable {
    /// Makes a value of what a keeper has; nil if that is not one of this type.
    init?(_ raw: RemoteRawValue)

    /// The value as a keeper would have it.
    var rawRemoteValue: RemoteRawValue { get }
}

extension String: RemoteValueType {
    public init?(_ raw: RemoteRawValue) {
        switch raw {
        case .string(let text), .variation(let text, _): self = text
        case .bool, .number: return nil
        }
    }

    public var rawRemoteValue: RemoteRawValue { .string(self) }
}

extension Bool: RemoteValueType {
    public init?(_ raw: RemoteRawValue) {
        switch raw {
        case .bool(let value), .variation(_, let value): self = value
        case .string, .number: return nil
        }
    }

    public var rawRemoteValue: RemoteRawValue { .bool(self) }
}

extension RemoteValueType where Self: RawRepresentable, RawValue == String {
    public init?(_ raw: RemoteRawValue) {
        guard let text = String(raw) else { return nil }
        self.init(rawValue: text)
    }

    public var rawRemoteValue: RemoteRawValue { .string(rawValue) }
}
