import Foundation

#if os(watchOS)
    import WatchKit
#elseif canImport(UIKit)
    import UIKit
#elseif canImport(AppKit)
    import AppKit
#endif

/// The notifications of a system about the life cycle of an app.
struct Lifecycle: Sendable {
    /// The app has entered the background.
    var background: Notification.Name
    /// The app is about to enter the foreground.
    var foreground: Notification.Name
    /// The app is about to end.
    var end: Notification.Name?

    /// The notifications of the current system; `nil` if it has none. On macOS an app is in the background while it is
    /// hidden.
    @MainActor static var ofSystem: Lifecycle? {
        #if os(watchOS)
            Lifecycle(
                background: WKApplication.didEnterBackgroundNotification,
                foreground: WKApplication.willEnterForegroundNotification)
        #elseif canImport(UIKit)
            Lifecycle(
                background: UIApplication.didEnterBackgroundNotification,
                foreground: UIApplication.willEnterForegroundNotification,
                end: UIApplication.willTerminateNotification)
        #elseif canImport(AppKit)
            Lifecycle(
                background: NSApplication.didHideNotification, foreground: NSApplication.didUnhideNotification,
                end: NSApplication.willTerminateNotification)
        #else
            nil
        #endif
    }

    /// Whether the app is currently in the background. The system may launch an app in the background.
    @MainActor static var isInBackground: Bool {
        #if os(watchOS)
            WKApplication.shared().applicationState == .background
        #elseif canImport(UIKit)
            UIApplication.current?.applicationState == .background
        #elseif canImport(AppKit)
            NSApplication.shared.isHidden
        #else
            false
        #endif
    }
}

#if canImport(UIKit) && !os(watchOS)
    extension UIApplication {
        /// The app; `nil` in an app extension, where `UIApplication.shared` must not be named.
        fileprivate static var current: UIApplication? {
            let selector = NSSelectorFromString("sharedApplication")
            guard responds(to: selector) else { return nil }
            return perform(selector)?.takeUnretainedValue() as? UIApplication
        }
    }
#endif

extension ListenerToken {
    // Safe: the object is only passed to the center, which is thread-safe.
    private struct Observer: @unchecked Sendable {
        let object: any NSObjectProtocol
    }

    /// Calls a function with each notification of a name, on the thread that posts it.
    static func observing(
        _ name: Notification.Name, of center: NotificationCenter = .default, _ call: @escaping @Sendable () -> Void
    ) -> ListenerToken {
        let observer = Observer(object: center.addObserver(forName: name, object: nil, queue: nil) { _ in call() })
        return ListenerToken { center.removeObserver(observer.object) }
    }
}

/// The client in the foreground and in the background.
extension HoldfastClient {
    /// Follows the life cycle for as long as the client exists.
    ///
    /// - Parameter isInBackground: whether the app is already in the background.
    func follow(_ lifecycle: Lifecycle, of center: NotificationCenter = .default, isInBackground: Bool = false) {
        observers.add(.observing(lifecycle.background, of: center) { [weak self] in self?.enterBackground() })
        observers.add(.observing(lifecycle.foreground, of: center) { [weak self] in self?.enterForeground() })
        if isInBackground { enterBackground() }
        guard let end = lifecycle.end else { return }
        observers.add(
            .observing(end, of: center) { [core, flags] in
                flags.reportCounts()
                core.save()
            })
    }

    /// Follows the life cycle of the app by the notifications of the system.
    func followSystem() {
        #if os(watchOS) || canImport(UIKit) || canImport(AppKit)
            // WatchKit's names are only available on the main actor.
            Task { @MainActor [weak self] in
                guard let lifecycle = Lifecycle.ofSystem else { return }
                self?.follow(lifecycle, isInBackground: Lifecycle.isInBackground)
            }
        #endif
    }

    /// Polls less often, stops listening for changes, writes caches, and sends queued events, for which it requests
    /// additional time from the system. The client calls this itself when the app enters the background; see
    /// ``HoldfastConfiguration/followsLifecycle``.
    public func enterBackground() {
        guard flags.setBackground(true) else { return }
        core.save()
        flags.stopListening()
        flags.reportCounts()
        let sending = Task { [core] in try? await core.flush() }
        keepRunning(until: sending)
    }

    /// Polls at the usual interval, and listens for changes. If a poll is overdue, it follows at once. The client calls
    /// this itself when the app enters the foreground; see ``HoldfastConfiguration/followsLifecycle``.
    public func enterForeground() {
        guard flags.setBackground(false) else { return }
        listen()
    }

    /// Keeps the system from suspending the app before a task ends, for as long as the system allows.
    private func keepRunning(until task: Task<Void?, Never>) {
        #if canImport(UIKit)
            // The system may suspend the app once the block has returned, so the block waits for the task. If the time
            // is over before that, the system calls the block again, with `isExpired`.
            let isDone = DispatchSemaphore(value: 0)
            Task {
                _ = await task.value
                isDone.signal()
            }
            ProcessInfo.processInfo.performExpiringActivity(withReason: "Holdfast sends events") { isExpired in
                if isExpired { isDone.signal() } else { isDone.wait() }
            }
        #endif
    }

    /// Fetches the flags and sends queued events, for a background task of the operating system; see
    /// ``HoldfastBackgroundTasks``.
    ///
    /// - Parameter timeout: longest time for the flags.
    /// - Throws: the first error. The events are sent even if the flags cannot be fetched.
    public func refreshInBackground(timeout: Duration = .seconds(25)) async throws(HoldfastError) {
        var failure: HoldfastError?
        do throws(HoldfastError) { try await fetchEvaluations(timeout: timeout) } catch { failure = error }
        do throws(HoldfastError) { try await flush() } catch { failure = failure ?? error }
        if let failure { throw failure }
    }
}
