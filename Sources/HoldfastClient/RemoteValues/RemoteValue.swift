/// The description of a remote value: where it is kept, its type, and the default the app has for it.
///
/// The macros write these (``StringRemoteValue(key:)``), and they can be written by hand:
///
/// ```swift
/// let greeting = RemoteValue("greeting", default: "Hello")
/// let text = service.remoteValue(for: greeting)
/// ```
///
/// ### Baseline
/// A value with a ``baselineKey`` has two names. The key itself holds the value under test, which only the users in the
/// experiment are given. The baseline key, by custom the same name with the suffix `_baseline`, holds the value for
/// everybody else: today's normal, which can be moved without touching the experiment. The value is then what the key
/// has, or else what the baseline key has, or else the default.
public struct RemoteValue<Value: RemoteValueType>: Sendable {
    public let key: RemoteKey
    public let baselineKey: RemoteKey?
    public let defaultValue: Value

    public init(_ key: RemoteKey, baselineKey: RemoteKey? = nil, default defaultValue: Value) {
        self.key = key
        self.baselineKey = baselineKey
        self.defaultValue = defaultValue
    }

    /// The value of those outside the experiment, whether or not this user is in it. A value without a baseline key is
    /// its own baseline.
    public var baseline: RemoteValue {
        RemoteValue(baselineKey ?? key, default: defaultValue)
    }
}

/// The name of a remote value where it is kept.
///
/// Two keys are the same only if their UTF-8 bytes are; `String`'s `==` would also take other spellings of an accent.
public struct RemoteKey: Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
    public let name: String

    public init(_ name: String) {
        self.name = name
    }

    public init(stringLiteral name: String) {
        self.name = name
    }

    /// The key of the baseline: the same name with the suffix `_baseline`.
    public var baseline: RemoteKey { RemoteKey(name + "_baseline") }

    public var description: String { name }
}

extension RemoteKey: Hashable {
    public static func == (left: RemoteKey, right: RemoteKey) -> Bool {
        left.name.utf8.elementsEqual(right.name.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        var name = name
        name.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

/// A value as its keeper has it, before the app's type is known.
public enum RemoteRawValue: Sendable, Hashable {
    case string(String)
    case bool(Bool)
    case number(Double)

    /// The variation a user has of a flag: as a string its key, as a Boolean whether the flag is enabled.
    case variation(key: String, enabled: Bool)
}

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
