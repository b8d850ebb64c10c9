#if canImport(os)
    import os
#else
    import Synchronization
#endif

/// A value behind a lock. `Synchronization.Mutex` needs iOS 18, so on Apple's systems this is their own lock.
final class Locked<Value>: @unchecked Sendable {
    // Safe: the value is read and written inside the lock only.

    #if canImport(os)
        private let lock = OSAllocatedUnfairLock()
        private nonisolated(unsafe) var value: Value

        init(_ value: sending Value) {
            self.value = value
        }

        /// Calls a function with the value while no other thread has it. The function must not take the same lock.
        func withLock<Result, Failure: Error>(
            _ body: (inout sending Value) throws(Failure) -> sending Result
        ) throws(Failure) -> sending Result {
            lock.lock()
            defer { lock.unlock() }
            return try body(&value)
        }
    #else
        private let mutex: Mutex<Value>

        init(_ value: sending Value) {
            mutex = Mutex(value)
        }

        /// Calls a function with the value while no other thread has it. The function must not take the same lock.
        @inline(__always)
        func withLock<Result, Failure: Error>(
            _ body: (inout sending Value) throws(Failure) -> sending Result
        ) throws(Failure) -> sending Result {
            try mutex.withLock(body)
        }
    #endif
}

/// A boolean that several threads share, with an atomic exchange.
final class SharedFlag: Sendable {
    private let value: Locked<Bool>

    init(_ value: Bool) {
        self.value = Locked(value)
    }

    @inline(__always)
    var isSet: Bool {
        get { value.withLock { $0 } }
        set { value.withLock { $0 = newValue } }
    }

    /// Changes the value.
    ///
    /// - Returns: the former value.
    func exchange(_ new: Bool) -> Bool {
        value.withLock { value in
            defer { value = new }
            return value
        }
    }
}
