import Foundation

#if canImport(BackgroundTasks) && !os(macOS) && !os(watchOS)
    import BackgroundTasks
    public import SwiftUI
#endif

/// Refreshes flags and sends events while the app is in the background, at times that the system chooses.
///
/// ```swift
/// @main struct ExampleApp: App {
///     init() {
///         HoldfastBackgroundTasks.register()
///     }
/// }
/// ```
///
/// A SwiftUI app without an initializer may use the scene modifier `holdfastBackgroundTasks(client:)` instead.
///
/// The app needs the capability "Background Modes" with "Background fetch", and ``identifier`` in the `Info.plist`,
/// under "Permitted background task scheduler identifiers" (`BGTaskSchedulerPermittedIdentifiers`). The system launches
/// the task at the earliest ``HoldfastConfiguration/backgroundPollingInterval`` after the app has entered the
/// background, or after the previous launch. There is no such scheduler on macOS, where apps are not suspended, and on
/// watchOS.
public enum HoldfastBackgroundTasks {
    /// The identifier of the task, `holdfast.refresh`.
    public static let identifier = "holdfast.refresh"

    #if canImport(BackgroundTasks) && !os(macOS) && !os(watchOS)
        private static let refresh = Locked<BackgroundRefresh?>(nil)

        /// Registers the task with the system. Call it once, before the app has finished launching: in the initializer
        /// of a SwiftUI app, or in `application(_:didFinishLaunchingWithOptions:)`. The client may be started later.
        ///
        /// - Parameter client: returns the client to refresh when the system asks for it; by default the shared one.
        /// - Returns: whether the system will run the task; `false` if the identifier is not in the `Info.plist`.
        @discardableResult
        public static func register(
            client: @escaping @Sendable () -> HoldfastClient? = { HoldfastClient.sharedIfStarted }
        ) -> Bool {
            refresh.withLock { refresh in
                // The system ends an app that registers a task twice.
                guard refresh == nil else { return true }
                let new = BackgroundRefresh(identifier, scheduler: SystemScheduler(), client: client)
                guard new.register() else { return false }
                new.followSystem()
                refresh = new
                return true
            }
        }

        /// Returns the refresh for the scene modifier. It is not registered here, because SwiftUI registers the task.
        fileprivate static func ofScene(_ client: @escaping @Sendable () -> HoldfastClient?) -> BackgroundRefresh {
            refresh.withLock { refresh in
                if let refresh { return refresh }
                let new = BackgroundRefresh(identifier, scheduler: SystemScheduler(), client: client)
                new.followSystem()
                refresh = new
                return new
            }
        }
    #endif
}

/// The part of `BGTaskScheduler` that a refresh uses, so that tests can replace it.
protocol BackgroundScheduler: Sendable {
    /// Registers a function that the system calls at each launch of the task.
    ///
    /// - Parameter launch: called on any thread. The system may start the app to launch a task that an earlier run has
    ///   submitted.
    /// - Returns: `false` if the `Info.plist` does not permit the identifier.
    func register(_ identifier: String, _ launch: @escaping @Sendable (any LaunchedTask) -> Void) -> Bool

    /// Requests one launch of the task.
    func submit(_ identifier: String, noSoonerThan date: Date) throws
}

/// A background task that the system has launched.
protocol LaunchedTask: Sendable {
    /// Sets the function that is called when the time for the task is over.
    func onExpiration(_ expire: @escaping @Sendable () -> Void)

    /// Tells the system that the task is done.
    func complete(success: Bool)
}

/// Refreshes a client whenever the system launches the task. A launch is requested when the app enters the background,
/// and by each launch for the next one.
final class BackgroundRefresh: Sendable {
    private let identifier: String
    private let scheduler: any BackgroundScheduler
    private let client: @Sendable () -> HoldfastClient?
    private let observers = OwnedTokens()

    init(
        _ identifier: String, scheduler: any BackgroundScheduler, client: @escaping @Sendable () -> HoldfastClient?
    ) {
        self.identifier = identifier
        self.scheduler = scheduler
        self.client = client
    }

    /// Registers the task with the system.
    ///
    /// - Returns: `false` if the `Info.plist` does not permit the identifier.
    func register() -> Bool {
        scheduler.register(identifier) { [self] in run($0) }
    }

    /// Requests a launch whenever a notification is posted.
    ///
    /// - Parameter background: the notification that the app has entered the background.
    func follow(_ background: Notification.Name, of center: NotificationCenter = .default) {
        observers.add(.observing(background, of: center) { [weak self] in self?.submit() })
    }

    /// Follows the life cycle of the app by the notifications of the system.
    func followSystem() {
        Task { @MainActor in
            if let lifecycle = Lifecycle.ofSystem { follow(lifecycle.background) }
        }
    }

    /// Requests the next launch, after the background polling interval.
    private func submit() {
        guard let client = client() else { return }
        let interval = client.configuration.backgroundPollingInterval.inSeconds
        do {
            try scheduler.submit(identifier, noSoonerThan: client.core.clock.now.addingTimeInterval(interval))
        } catch {
            // Simulators have no background tasks, and users may turn them off.
            client.core.log(.notice, "no background task", ["error": error.localizedDescription])
        }
    }

    /// Refreshes the client for a launch, until the system ends the time for it.
    private func run(_ task: any LaunchedTask) {
        let work = Task {
            let isRefreshed = await refresh()
            task.complete(success: isRefreshed)
        }
        task.onExpiration { work.cancel() }
    }

    /// Requests the next launch, then refreshes the client.
    ///
    /// - Returns: whether the refresh succeeded.
    func refresh() async -> Bool {
        submit()
        guard let client = client() else { return false }
        return (try? await client.refreshInBackground()) != nil
    }
}

#if canImport(BackgroundTasks) && !os(macOS) && !os(watchOS)
    extension Scene {
        /// Refreshes flags and sends events in the background. It replaces
        /// ``HoldfastBackgroundTasks/register(client:)``, which an app with this modifier must not call, and needs the
        /// same capability and `Info.plist` entry.
        ///
        /// - Parameter client: returns the client to refresh when the system asks for it; by default the shared one.
        public func holdfastBackgroundTasks(
            client: @escaping @Sendable () -> HoldfastClient? = { HoldfastClient.sharedIfStarted }
        ) -> some Scene {
            let refresh = HoldfastBackgroundTasks.ofScene(client)
            return backgroundTask(.appRefresh(HoldfastBackgroundTasks.identifier)) { _ = await refresh.refresh() }
        }
    }

    private struct SystemScheduler: BackgroundScheduler {
        func register(_ identifier: String, _ launch: @escaping @Sendable (any LaunchedTask) -> Void) -> Bool {
            BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: nil) { task in
                launch(SystemTask(task: task))
            }
        }

        func submit(_ identifier: String, noSoonerThan date: Date) throws {
            let request = BGAppRefreshTaskRequest(identifier: identifier)
            request.earliestBeginDate = date
            try BGTaskScheduler.shared.submit(request)
        }
    }

    // Safe: the system lets any thread complete a task, and the handler is set once, in the launch.
    private struct SystemTask: LaunchedTask, @unchecked Sendable {
        let task: BGTask

        func onExpiration(_ expire: @escaping @Sendable () -> Void) {
            task.expirationHandler = expire
        }

        func complete(success: Bool) {
            task.setTaskCompleted(success: success)
        }
    }
#endif
