public import Dispatch
public import Foundation

// What the library uses of BackgroundTasks, as its documentation declares it.

open class BGTaskRequest: NSObject {
    public let identifier: String
    open var earliestBeginDate: Date?

    init(identifier: String) { self.identifier = identifier }
}

public final class BGAppRefreshTaskRequest: BGTaskRequest {
    override public init(identifier: String) { super.init(identifier: identifier) }
}

open class BGTask: NSObject {
    open var expirationHandler: (() -> Void)?

    open func setTaskCompleted(success: Bool) {}
}

open class BGTaskScheduler: NSObject {
    public static var shared: BGTaskScheduler { BGTaskScheduler() }

    open func register(
        forTaskWithIdentifier identifier: String, using queue: DispatchQueue?,
        launchHandler: @escaping @Sendable (BGTask) -> Void
    ) -> Bool { true }

    open func submit(_ taskRequest: BGTaskRequest) throws {}
}
