/// The name of a remote value and its type. The recommended form is one enum for all keys of an app:
///
/// ```swift
/// enum Key: String, CaseIterable, RemoteKey {
///     case paywallType = "paywall_type"
///     case storiesEnabled = "stories_enabled"
///
///     var valueType: any RemoteValue.Type {
///         switch self {
///         case .paywallType: PaywallType.self
///         case .storiesEnabled: StoriesEnabled.self
///         }
///     }
/// }
/// ```
public protocol RemoteKey: Sendable {
    /// The name under which a keeper has the value. By default the raw value.
    var name: String { get }

    /// The type that the service audits and lists; see ``RemoteConfigService/getValues(for:)``.
    var valueType: any RemoteValue.Type { get }
}

extension RemoteKey where Self: RawRepresentable, RawValue == String {
    public var name: String { rawValue }
}

/// A key that has the type of its value, so that the compiler refuses another one:
///
/// ```swift
/// extension TypedRemoteKey where Value == PaywallType {
///     static var paywall: Self { Self("paywall_type") }
/// }
/// let paywall = service.remoteValue(for: .paywall)
/// ```
public struct TypedRemoteKey<Value: RemoteValue>: RemoteKey, Hashable {
    public let name: String

    public init(_ name: String) {
        self.name = name
    }

    public var valueType: any RemoteValue.Type { Value.self }
}

/// A type of remote values. Conform to one of the refining protocols, by hand or with a macro:
///
/// | protocol | macro | for |
/// | --- | --- | --- |
/// | ``StringInitializableRemoteValue`` | `@StringRemoteValue` | several variants |
/// | ``BoolEnumRemoteValue`` | `@BoolRemoteValue` | enabled or disabled |
/// | ``BaselineStringRemoteValue`` | `@BaselineStringRemoteValue` | several variants and a baseline |
/// | ``BaselineBoolRemoteValue`` | `@BaselineBoolRemoteValue` | enabled or disabled and a baseline |
/// | ``IntInitializableRemoteValue`` | | integers |
/// | ``DoubleInitializableRemoteValue`` | | numbers |
/// | ``DecodableRemoteValue`` | | JSON |
public protocol RemoteValue: Sendable {
    /// The value that the app uses if there is no usable remote value.
    static var `default`: Self { get }

    /// Parses a keeper's value; `nil` for an incorrect value. The refining protocols implement it.
    static func parse(_ raw: HoldfastValue) -> Self?

    /// The value in a debug list. The refining protocols implement it.
    var displayName: String { get }
}

extension RemoteValue {
    public static func parse(_ raw: HoldfastValue) -> Self? { nil }

    public var displayName: String { String(describing: self) }
}

/// A value that is sent to an app's analytics as the group of an experiment, by
/// ``RemoteConfigService/trackExperimentalGroup(_:for:)``.
///
/// Macros for values with a baseline add this conformance. Other types opt in.
public protocol ExperimentalGroupTrackable: RemoteValue {
    /// Name of the group; `nil` if the value is not tracked, as a baseline is not.
    var experimentalGroup: String? { get }
}

extension ExperimentalGroupTrackable where Self: StringInitializableRemoteValue {
    public var experimentalGroup: String? { name }
}

extension ExperimentalGroupTrackable where Self: BoolEnumRemoteValue {
    public var experimentalGroup: String? { displayName }
}

// MARK: - Strings

/// A remote value that is read from a string, such as an enum with string cases. The first case is the default:
///
/// ```swift
/// enum PaywallType: String, CaseIterable, StringInitializableRemoteValue {
///     case a, b, c
///     static let `default`: Self = .b   // only if the default is not the first case
/// }
/// ```
public protocol StringInitializableRemoteValue: RemoteValue {
    /// Reads a remote value.
    ///
    /// - Returns: `nil` for an incorrect value.
    init?(name: String)

    /// The name of the value, in debug lists and in analytics.
    var name: String { get }
}

extension StringInitializableRemoteValue {
    public static func parse(_ raw: HoldfastValue) -> Self? { raw.text.flatMap { Self(name: $0) } }

    public var displayName: String { name }
}

extension StringInitializableRemoteValue where Self: RawRepresentable, RawValue == String {
    public init?(name: String) {
        self.init(rawValue: name)
        // String.== would also accept another composition of the same letters.
        guard rawValue.hasSameBytes(as: name) else { return nil }
    }

    public var name: String { rawValue }
}

extension RemoteValue where Self: CaseIterable {
    /// The first case.
    public static var `default`: Self {
        guard let first = allCases.first else { preconditionFailure("\(Self.self) must have a case") }
        return first
    }
}

// MARK: - Booleans

/// A remote value that is either enabled or disabled; disabled by default.
///
/// ```swift
/// enum StoriesEnabled: CaseIterable, BoolEnumRemoteValue {
///     case enabled
///     case disabled
///     static let `default`: Self = .enabled   // only if it is enabled by default
/// }
/// ```
public protocol BoolEnumRemoteValue: RemoteValue, Equatable {
    static var enabled: Self { get }
    static var disabled: Self { get }
}

extension BoolEnumRemoteValue {
    public static var `default`: Self { .disabled }

    public var isEnabled: Bool { self == .enabled }

    public static func parse(_ raw: HoldfastValue) -> Self? { raw.bool.map { $0 ? .enabled : .disabled } }

    public var displayName: String { isEnabled ? "enabled" : "disabled" }
}

extension BoolEnumRemoteValue where Self: CaseIterable {
    // Needed for `CaseIterable` types: without it, the default of such types, their first case, would be ambiguous.
    public static var `default`: Self { .disabled }
}

// MARK: - Numbers and JSON

/// A remote value that is read from an integer.
///
/// ```swift
/// struct PageSize: RawRepresentable, IntInitializableRemoteValue {
///     static let `default` = PageSize(rawValue: 20)
///     var rawValue: Int
/// }
/// ```
public protocol IntInitializableRemoteValue: RemoteValue {
    /// - Returns: `nil` for an incorrect value.
    init?(int: Int)
}

extension IntInitializableRemoteValue {
    public static func parse(_ raw: HoldfastValue) -> Self? { raw.int.flatMap { Self(int: $0) } }
}

extension IntInitializableRemoteValue where Self: RawRepresentable, RawValue == Int {
    public init?(int: Int) { self.init(rawValue: int) }

    public var displayName: String { "\(rawValue)" }
}

/// A remote value that is read from a number.
public protocol DoubleInitializableRemoteValue: RemoteValue {
    /// - Returns: `nil` for an incorrect value.
    init?(double: Double)
}

extension DoubleInitializableRemoteValue {
    public static func parse(_ raw: HoldfastValue) -> Self? { raw.double.flatMap { Self(double: $0) } }
}

extension DoubleInitializableRemoteValue where Self: RawRepresentable, RawValue == Double {
    public init?(double: Double) { self.init(rawValue: double) }

    public var displayName: String { "\(rawValue)" }
}

/// A remote value that is decoded from JSON: an object, an array, or a string that holds one.
public protocol DecodableRemoteValue: RemoteValue, Decodable {}

extension DecodableRemoteValue {
    public static func parse(_ raw: HoldfastValue) -> Self? { raw.decoded(as: Self.self) }
}
