/// A split test. A new one is one small type:
///
/// ```swift
/// enum PaywallTest: SplitTest {
///     static let key = "paywall"
///
///     enum Group: String, CaseIterable {
///         case control
///         case controlCheck = "control_check"
///         case annualFirst = "annual_first"
///     }
/// }
/// ```
///
/// The raw values of the groups are the keys of the variations in Holdfast. `control` and `controlCheck` are two groups
/// of which both see what there was before: if their results differ, the test itself is not to be trusted.
public protocol SplitTest {
    /// The groups, each a case whose raw value is a variation key.
    associatedtype Group: RawRepresentable & CaseIterable & Hashable & Sendable where Group.RawValue == String

    /// The key of the experiment in Holdfast.
    static var key: String { get }
}

extension SplitTest {
    static func group(of record: SplitTestRecord) -> Group? {
        Group(rawValue: record.assignment.variationKey)
    }
}
