import Glibc

/// The event loops that are to be woken at the end of ``EventLoop/coalescingWakeUps(_:)``.
final class PendingWakeUps {
    private(set) var loops: [EventLoop] = []

    func add(_ loop: EventLoop) {
        if !loops.contains(where: { $0 === loop }) { loops.append(loop) }
    }
}

/// The scope that the current thread is in. Swift has no thread-local variables; this is POSIX's.
enum WakeUpScope {
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        return key
    }()

    /// Held by ``EventLoop/coalescingWakeUps(_:)`` for as long as it is set.
    static var current: PendingWakeUps? {
        get { pthread_getspecific(key).map { Unmanaged<PendingWakeUps>.fromOpaque($0).takeUnretainedValue() } }
        set { pthread_setspecific(key, newValue.map { Unmanaged.passUnretained($0).toOpaque() }) }
    }
}
