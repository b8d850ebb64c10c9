/// A remote value with several variants. Everybody outside the experiment gets the baseline.
///
/// A value with the suffix `_baseline`, such as `b_baseline`, is variant `b` with ``baseline`` set: the server changes
/// the app's default for everybody, without an experiment. Such a value is not tracked as an experimental group.
///
/// ```swift
/// struct PaywallTest: CaseIterable, BaselineStringRemoteValue {
///     enum Variant: String, CaseIterable, StringInitializableRemoteValue {
///         case a, b, c
///     }
///     let baseline: Bool
///     let variant: Variant
///
///     init(baseline: Bool, variant: Variant) {
///         self.baseline = baseline
///         self.variant = variant
///     }
/// }
/// ```
public protocol BaselineStringRemoteValue: StringInitializableRemoteValue, Equatable {
    associatedtype Variant: StringInitializableRemoteValue, Equatable

    /// Whether the value is the baseline rather than the group of an experiment.
    var baseline: Bool { get }
    /// The variant that the app shows.
    var variant: Variant { get }

    init(baseline: Bool, variant: Variant)
}

extension BaselineStringRemoteValue {
    /// The default of `Variant` as baseline.
    public static var `default`: Self { Self(baseline: true, variant: Variant.default) }

    public init?(name: String) {
        let (name, baseline) = Baseline.split(name)
        guard let variant = Variant(name: name) else { return nil }
        self.init(baseline: baseline, variant: variant)
    }

    /// The variant's name, without the suffix.
    public var name: String { variant.name }

    public var displayName: String { baseline ? "\(variant.displayName) (baseline)" : variant.displayName }
}

extension BaselineStringRemoteValue where Variant: CaseIterable {
    public static var allCases: [Self] {
        Variant.allCases.flatMap { [Self(baseline: true, variant: $0), Self(baseline: false, variant: $0)] }
    }
}

extension BaselineStringRemoteValue where Self: CaseIterable {
    // Needed for `CaseIterable` types: without it, the default of such types, their first case, would be ambiguous.
    public static var `default`: Self { Self(baseline: true, variant: Variant.default) }
}

extension ExperimentalGroupTrackable where Self: BaselineStringRemoteValue {
    public var experimentalGroup: String? { baseline ? nil : name }
}

/// A remote value that is enabled or disabled, with a baseline for everybody outside the experiment: `true`, `false`,
/// `true_baseline` or `false_baseline`. See ``BaselineStringRemoteValue``.
public protocol BaselineBoolRemoteValue: StringInitializableRemoteValue, Equatable {
    /// Whether the value is the baseline rather than the group of an experiment.
    var baseline: Bool { get }
    var isEnabled: Bool { get }

    init(baseline: Bool, isEnabled: Bool)
}

extension BaselineBoolRemoteValue {
    /// Disabled, as baseline.
    public static var `default`: Self { Self(baseline: true, isEnabled: false) }

    public init?(name: String) {
        let (name, baseline) = Baseline.split(name)
        switch name {
        case "true": self.init(baseline: baseline, isEnabled: true)
        case "false": self.init(baseline: baseline, isEnabled: false)
        default: return nil
        }
    }

    /// The name for analytics, `Enabled` or `Disabled`.
    public var name: String { isEnabled ? "Enabled" : "Disabled" }

    public var displayName: String { baseline ? "\(name) (baseline)" : name }

    public static var allCases: [Self] {
        [true, false].flatMap { [Self(baseline: true, isEnabled: $0), Self(baseline: false, isEnabled: $0)] }
    }
}

extension BaselineBoolRemoteValue where Self: CaseIterable {
    // Needed for `CaseIterable` types: without it, the default of such types, their first case, would be ambiguous.
    public static var `default`: Self { Self(baseline: true, isEnabled: false) }
}

extension ExperimentalGroupTrackable where Self: BaselineBoolRemoteValue {
    public var experimentalGroup: String? { baseline ? nil : name }
}

/// The suffix that marks the baseline in a remote value.
private enum Baseline {
    private static let suffix = "_baseline"

    /// Returns a name without the suffix, and whether it had the suffix.
    static func split(_ name: String) -> (name: String, baseline: Bool) {
        name.hasSuffix(suffix) ? (String(name.dropLast(suffix.count)), true) : (name, false)
    }
}
