public import Foundation

/// A split test: one small type per test.
///
/// ```swift
/// enum ButtonColorTest: SplitTest {
///     static let identifier = "button_color"
///
///     enum Group: String, CaseIterable, SplitTestGroup {
///         case control, controlCheck = "control_check", red
///     }
/// }
/// ```
///
/// Both groups `control` and `control_check` show the same: if their results differ, do not trust the other results of
/// the test.
public protocol SplitTest {
    associatedtype Group: SplitTestGroup

    /// Key of the experiment on the server, and part of the keys below.
    static var identifier: String { get }

    /// Key of the group in the app's analytics. By default `split_test-` and the identifier.
    static var analyticsKey: String { get }

    /// Key of the group in the storage. By default `split_test_database-` and the identifier.
    static var storageKey: String { get }

    /// The group that is shown to users who are not enrolled in the test. By default the first of
    /// ``SplitTestGroup/testGroups``.
    static var fallbackGroup: Group { get }
}

extension SplitTest {
    public static var analyticsKey: String { "split_test-\(identifier)" }

    public static var storageKey: String { "split_test_database-\(identifier)" }

    public static var fallbackGroup: Group {
        guard let first = Group.testGroups.first else {
            preconditionFailure("\(Group.self).testGroups must not be empty")
        }
        return first
    }
}

/// The groups of a split test. The raw values are the keys of the experiment's variations, of the stored groups and of
/// the groups in analytics.
public protocol SplitTestGroup: RawRepresentable, Hashable, Sendable where RawValue == String {
    /// The groups that new users may get. By default all cases. Leave a retired group out: nobody new gets it, and the
    /// users who have it keep it.
    static var testGroups: [Self] { get }
}

extension SplitTestGroup where Self: CaseIterable {
    public static var testGroups: [Self] { Array(allCases) }
}

/// A user's part in a split test.
public struct SplitTestHandle<Test: SplitTest>: Sendable {
    /// The group to show: the user's group, or ``SplitTest/fallbackGroup`` for a user who is not enrolled.
    public let group: Test.Group
    /// Where the group comes from.
    public let source: SplitTestSource
    /// Why the group is not from the server, or why the user cannot be enrolled; `nil` otherwise.
    public let error: SplitTestError?
    private let report: @Sendable () -> Void

    /// - Parameter report: called by each ``hit()``.
    public init(
        group: Test.Group, source: SplitTestSource, error: SplitTestError? = nil,
        report: @escaping @Sendable () -> Void = {}
    ) {
        self.group = group
        self.source = source
        self.error = error
        self.report = report
    }

    /// Whether the user is enrolled in the test.
    public var isParticipating: Bool { source != .none }

    /// Call this when the user sees the group. The first hit of a group is reported to the server and to the app's
    /// analytics. Later hits are not reported, even in later runs. Hits of users who are not enrolled are never
    /// reported.
    public func hit() {
        report()
    }
}

/// Assigns users to the groups of split tests. ``SplitTestService`` implements it; views that depend on the protocol
/// can be given another implementation in tests.
public protocol SplitTestServiceProtocol: Sendable {
    /// Returns the user's part in a test.
    func fetchSplitTest<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test>

    /// Returns the user's part in a test if it is known on the device, without waiting.
    func keptSplitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test>?

    /// Returns the user's part in a test at once, for a view that cannot wait.
    func splitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test>
}

extension SplitTestServiceProtocol {
    /// By default returns the part that is known on the device. If none is known, returns a part with
    /// ``SplitTest/fallbackGroup`` and the source ``SplitTestSource/none``.
    public func splitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test> {
        keptSplitTest(test) ?? SplitTestHandle(group: Test.fallbackGroup, source: .none)
    }
}

/// Where a group comes from.
public enum SplitTestSource: Sendable, Hashable {
    /// The server assigned it.
    case server
    /// The storage has it from an earlier run, and the server was not reached.
    case kept
    /// It was drawn on the device, now or in an earlier run.
    case local
    /// The user is not enrolled: the test is paused, the user is outside of its audience or traffic, or the storage
    /// failed.
    case none
}

/// Why a user has no group, or not one from the server.
public enum SplitTestError: Error, Sendable, Equatable {
    /// The server could not be reached in time.
    case unavailable(HoldfastError)
    /// The server refused the request, for instance because it has no such experiment.
    case refused(HoldfastError)
    /// The server or the storage has a group that the test does not declare.
    case unknownGroup(String)
    /// The storage failed. The user is not enrolled, because the group could not be kept.
    case storage(reason: String)
}

extension SplitTestError: LocalizedError {
    /// The error in a sentence, for logs and developers; also `localizedDescription`.
    public var errorDescription: String? {
        switch self {
        case .unavailable(let error), .refused(let error): error.localizedDescription
        case .unknownGroup(let group): "the test does not declare the group '\(group)'"
        case .storage(let reason): "the storage cannot be read or written: \(reason)"
        }
    }
}

/// The app's analytics.
///
/// ```swift
/// struct Analytics: SplitTestAnalytics {
///     func setOnce(value: String, for key: String) { tracker.setUserProperty(key, value) }
/// }
/// ```
public protocol SplitTestAnalytics: Sendable {
    /// Registers that the user saw a group. It is called at the first hit of a user and group. If the app crashes at
    /// that moment, it may be called again.
    ///
    /// - Parameters:
    ///   - value: the name of the group.
    ///   - key: the ``SplitTest/analyticsKey`` of the test.
    func setOnce(value: String, for key: String)
}
