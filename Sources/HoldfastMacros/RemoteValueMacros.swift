import HoldfastClient

/// Makes an enum with string cases a ``StringInitializableRemoteValue``. The first case is the default, unless the
/// enum declares a `static let default`.
///
/// ```swift
/// @StringRemoteValue
/// enum PaywallType: String {
///     case a, b, c
/// }
/// ```
@attached(extension, conformances: CaseIterable, StringInitializableRemoteValue)
public macro StringRemoteValue() = #externalMacro(module: "HoldfastMacrosPlugin", type: "StringRemoteValueMacro")

/// Makes an enum with the cases `enabled` and `disabled` a ``BoolEnumRemoteValue``.
///
/// ```swift
/// @BoolRemoteValue
/// enum StoriesEnabled {
///     case enabled, disabled
/// }
/// ```
///
/// - Parameter enabledByDefault: the default, unless the enum declares a `static let default`.
@attached(member, names: named(`default`))
@attached(extension, conformances: CaseIterable, BoolEnumRemoteValue)
public macro BoolRemoteValue(enabledByDefault: Bool = false) =
    #externalMacro(module: "HoldfastMacrosPlugin", type: "BoolRemoteValueMacro")

/// Makes a struct with a nested enum `Variant` a ``BaselineStringRemoteValue``. The default is the baseline of the
/// variant's default.
///
/// ```swift
/// @BaselineStringRemoteValue
/// struct PaywallTest {
///     enum Variant: String {
///         case a, b, c
///     }
/// }
/// ```
@attached(member, names: named(baseline), named(variant), named(init(baseline:variant:)))
@attached(memberAttribute)
@attached(extension, conformances: CaseIterable, BaselineStringRemoteValue, ExperimentalGroupTrackable)
public macro BaselineStringRemoteValue() =
    #externalMacro(module: "HoldfastMacrosPlugin", type: "BaselineStringRemoteValueMacro")

/// Makes an empty struct a ``BaselineBoolRemoteValue``.
///
/// ```swift
/// @BaselineBoolRemoteValue(enabledByDefault: true)
/// struct SoundEnabled {}
/// ```
///
/// - Parameter enabledByDefault: the default, unless the struct declares a `static let default`.
@attached(member, names: named(baseline), named(isEnabled), named(init(baseline:isEnabled:)), named(`default`))
@attached(extension, conformances: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable)
public macro BaselineBoolRemoteValue(enabledByDefault: Bool = false) =
    #externalMacro(module: "HoldfastMacrosPlugin", type: "BaselineBoolRemoteValueMacro")

/// Adds the matching macro to each type that is nested in an enum, unless the type has one of these macros already.
///
/// | nested type | macro |
/// | --- | --- |
/// | enum with string cases | ``StringRemoteValue()`` |
/// | enum with the cases `enabled` and `disabled` | ``BoolRemoteValue(enabledByDefault:)`` |
/// | struct with an enum `Variant` | ``BaselineStringRemoteValue()`` |
/// | empty struct | ``BaselineBoolRemoteValue(enabledByDefault:)`` |
///
/// ```swift
/// @RemoteValuesNamespace
/// enum Values {
///     enum OnboardingType: String {
///         case short, long
///     }
///     enum StoriesEnabled {
///         case enabled, disabled
///     }
/// }
/// ```
@attached(memberAttribute)
public macro RemoteValuesNamespace() =
    #externalMacro(module: "HoldfastMacrosPlugin", type: "RemoteValuesNamespaceMacro")
