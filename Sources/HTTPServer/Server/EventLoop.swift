internal import CSystem
internal import Synchronization
import Glibc

/// A thread that waits for sockets, deadlines and jobs from other threads, and does the work of each in turns.
///
/// What other threads want done goes through ``submit(_:)``; all else belongs to the loop's thread.
public final class EventLoop: @unchecked Sendable {
    // Safe to share: other threads use the mailbox and the wake-up descriptor only, which are guarded.

    /// Which of the server's loops it is, from 0.
    public let index: Int

    var selector: Selector
    var deadlines = DeadlineQueue()
    private let mailbox = Mutex(Mailbox())
    private let hasMail = Atomic<Bool>(false)
    private let isAsleep = Atomic<Bool>(false)
    private let wakeDescriptor: Int32
    private let thread = Atomic<UInt>(0)

    private struct Mailbox {
        var jobs: [@Sendable () -> Void] = []
        var isClosed = false
    }

    static let wakeToken = UInt64.max

    init(index: Int) throws(SystemError) {
        self.index = index
        selector = try Selector()
        wakeDescriptor = try SystemCall.check("eventfd") { csystem_eventfd() }
        try selector.add(wakeDescriptor, token: Self.wakeToken)
    }

    deinit {
        selector.close()
        _ = close(wakeDescriptor)
    }

    func adoptThread() {
        thread.store(UInt(pthread_self()), ordering: .relaxed)
    }

    /// Whether the caller runs on the loop's thread.
    public var isCurrent: Bool {
        @inline(__always) get { thread.load(ordering: .relaxed) == UInt(pthread_self()) }
    }

    /// Has work done on the loop's thread, after what was submitted before it and before any request is handled that
    /// arrives later.
    ///
    /// - Returns: `false` if the loop has ended, so that nobody will do it.
    @discardableResult
    public func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = mailbox.withLock { mailbox in
            if !mailbox.isClosed { mailbox.jobs.append(job) }
            return !mailbox.isClosed
        }
        guard isTaken else { return false }
        hasMail.store(true, ordering: .sequentiallyConsistent)
        if let pending = WakeUpScope.current {
            pending.add(self)
        } else if isAsleep.exchange(false, ordering: .sequentiallyConsistent) {
            wake()
        }
        return true
    }

    /// Has work done on the loop's thread: at once when called there.
    public func run(_ work: @escaping @Sendable () -> Void) {
        if isCurrent { work() } else { submit(work) }
    }

    /// Runs work that submits to event loops, and wakes each of them only once, at the end.
    public static func coalescingWakeUps(_ work: () -> Void) {
        let pending = PendingWakeUps()
        WakeUpScope.current = pending
        work()
        WakeUpScope.current = nil
        for loop in pending.loops where loop.isAsleep.exchange(false, ordering: .sequentiallyConsistent) { loop.wake() }
    }

    private func wake() {
        var one: UInt64 = 1
        // A full counter means that a wake-up is under way already.
        _ = write(wakeDescriptor, &one, 8)
    }

    func clearWakeUp() {
        var count: UInt64 = 0
        _ = read(wakeDescriptor, &count, 8)
    }

    /// Waits for events, no longer than until the next deadline.
    func wait(atMost limit: Int32, now: UInt64) throws(SystemError) -> Int {
        var milliseconds = limit
        if let next = deadlines.next {
            let remaining = next > now ? (next - now) / 1_000_000 + 1 : 0
            let capped = Int32(clamping: min(remaining, 60_000))
            milliseconds = limit < 0 ? capped : min(limit, capped)
        }
        isAsleep.store(true, ordering: .sequentiallyConsistent)
        if hasMail.load(ordering: .sequentiallyConsistent) { milliseconds = 0 }
        defer { isAsleep.store(false, ordering: .sequentiallyConsistent) }
        return try selector.wait(milliseconds: milliseconds)
    }

    func runMail() {
        guard hasMail.exchange(false, ordering: .sequentiallyConsistent) else { return }
        for job in takeMail() { job() }
    }

    /// Does what has been submitted, and takes no more.
    func closeMailbox() {
        while case let jobs = takeMail(closesIfEmpty: true), !jobs.isEmpty {
            for job in jobs { job() }
        }
    }

    private func takeMail(closesIfEmpty: Bool = false) -> [@Sendable () -> Void] {
        mailbox.withLock { mailbox in
            if closesIfEmpty, mailbox.jobs.isEmpty { mailbox.isClosed = true }
            defer { mailbox.jobs = [] }
            return mailbox.jobs
        }
    }
}

/// Deadlines of connections, the nearest first: a binary heap. A connection whose deadline moves further away keeps
/// its entry, and is looked at again when that comes up; so a request on a living connection costs nothing here.
struct DeadlineQueue {
    struct Entry {
        /// Monotonic nanoseconds.
        let time: UInt64
        let token: UInt64
    }

    private var heap: [Entry] = []

    var next: UInt64? { heap.first?.time }

    mutating func insert(_ entry: Entry) {
        heap.append(entry)
        var child = heap.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].time < heap[parent].time else { break }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    /// Takes out the nearest deadline if it is not after `now`.
    mutating func popExpired(now: UInt64) -> Entry? {
        guard let first = heap.first, first.time <= now else { return nil }
        let last = heap.removeLast()
        guard !heap.isEmpty else { return first }
        heap[0] = last
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && heap[child].time < heap[least].time {
                least = child
            }
            if least == parent { return first }
            heap.swapAt(parent, least)
            parent = least
        }
    }
}

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
