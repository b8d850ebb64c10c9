public import Foundation

// What the library and the articles use of UIKit, as its documentation declares it.

@MainActor open class UIResponder: NSObject {}

@MainActor public final class UIApplication: UIResponder {
    public struct LaunchOptionsKey: RawRepresentable, Hashable, Sendable {
        public let rawValue: String

        public init(rawValue: String) { self.rawValue = rawValue }
    }

    public enum State: Int, Sendable {
        case active, inactive, background
    }

    public var applicationState: State { .background }

    nonisolated public static let didEnterBackgroundNotification = NSNotification.Name("background")
    nonisolated public static let willEnterForegroundNotification = NSNotification.Name("foreground")
    nonisolated public static let willTerminateNotification = NSNotification.Name("end")
}

public enum UIBackgroundFetchResult: UInt, Sendable {
    case newData, noData, failed
}

@MainActor public protocol UIApplicationDelegate: AnyObject {
    func application(
        _ application: UIApplication,
        didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool

    func application(
        _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult
}

extension UIApplicationDelegate {
    public static func main() {}
}

/// Of the Objective-C runtime and its root class.
public struct Selector: Sendable {}

public func NSSelectorFromString(_ name: String) -> Selector { Selector() }

extension NSObject {
    public class func responds(to selector: Selector!) -> Bool { false }
    public class func perform(_ selector: Selector!) -> Unmanaged<AnyObject>! { nil }
}

extension ProcessInfo {
    /// Of Foundation on iOS, tvOS, watchOS and visionOS.
    public func performExpiringActivity(withReason reason: String, using block: @escaping @Sendable (Bool) -> Void) {}
}
