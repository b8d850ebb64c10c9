// What the library uses of os, as its documentation declares it.

public struct OSAllocatedUnfairLock<State>: @unchecked Sendable {
    @available(*, noasync) public func lock() {}
    @available(*, noasync) public func unlock() {}
}

extension OSAllocatedUnfairLock where State == Void {
    public init() {}
}
