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

/// That a user met a test for the first time.
public struct SplitTestExposure: Sendable, Hashable {
    public let userID: String
    public let testKey: String
    public let assignment: SplitTestAssignment

    public init(userID: String, testKey: String, assignment: SplitTestAssignment) {
        self.userID = userID
        self.testKey = testKey
        self.assignment = assignment
    }
}

/// The app's own analytics, which want to know of exposures.
///
/// ```swift
/// struct Analytics: SplitTestAnalytics {
///     func userWasExposed(_ exposure: SplitTestExposure) async {
///         await tracker.setUserProperty(exposure.testKey, exposure.assignment.variationKey)
///     }
/// }
/// ```
public protocol SplitTestAnalytics: Sendable {
    /// Told once for each user and assignment, over all runs of the app, at the moment of the first hit. A process
    /// killed in that moment may leave it untold; it is never told twice.
    func userWasExposed(_ exposure: SplitTestExposure) async

    /// Holdfast's reporter could not take the exposure. It is tried again at the next hit, and the analytics are told
    /// of the exposure then.
    func exposureWasNotReported(_ exposure: SplitTestExposure, error: SplitTestError) async
}

extension SplitTestAnalytics {
    public func exposureWasNotReported(_ exposure: SplitTestExposure, error: SplitTestError) async {}
}

/// Why there is no group.
public enum SplitTestError: Error, Sendable, Equatable {
    /// No group is kept, and the server could not be reached; it may be later.
    case unavailable(reason: String)

    /// The server knows no such test, or refused to answer for another reason.
    case refused(testKey: String, reason: String)

    /// The user was given a variation that is no case of the test's groups.
    case unknownGroup(testKey: String, variationKey: String)

    /// The app's storage failed, so the group could not be read or would not last.
    case storage(reason: String)
}
