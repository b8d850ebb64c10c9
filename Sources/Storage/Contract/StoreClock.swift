public import Chronology
public import Dispatch
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Returns the current time; tests substitute one that they control.
public typealias WallClock = @Sendable () -> Instant

/// Returns the system's time.
@Sendable
public func systemWallClock() -> Instant {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Instant(milliseconds: Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000)
}

/// The time of a database, which does not go back: an expired assignment stays expired, and later records have later
/// times.
///
/// The time comes from a source, such as the wall clock. If the source is set back, the time stands still until the
/// source has caught up. There is one exception: if the source is set back by more than ``maximumStep``, the time goes
/// back as well, because somebody has corrected a clock that was far ahead.
public final class StoreClock: Sendable {
    /// A step back of the source, for the log.
    public enum Event: Sendable, Equatable {
        /// The source was set back by this span, and the time stands still.
        case stands(back: TimeSpan)
        /// The source was set back by this span, and the time has gone back as well.
        case follows(back: TimeSpan)
    }

    /// The greatest step back of the source that the time does not follow.
    public static let maximumStep = TimeSpan.days(1)
    /// ``maximumStep`` for the clock of an edge. It is small, because each response of the upstream may correct the
    /// source.
    public static let maximumCorrection = TimeSpan.seconds(1)

    private let source: WallClock
    private let maximumStep: TimeSpan
    private let report: @Sendable (Event) -> Void
    /// The latest time in milliseconds since 1970 that this process has read from the source, or that another process
    /// has stored in the database.
    private let latest = Atomic<Int64>(.min)
    /// Whether the time stands still, and this was reported.
    private let stands = Atomic<Bool>(false)
    /// Smaller steps back are not reported, because time synchronization makes them all the time.
    private static let negligible = TimeSpan.seconds(1)

    /// - Parameters:
    ///   - maximumStep: see ``StoreClock/maximumStep``.
    ///   - report: called on any thread, once for each step back.
    public init(
        _ source: @escaping WallClock, maximumStep: TimeSpan = StoreClock.maximumStep,
        report: @escaping @Sendable (Event) -> Void = { _ in }
    ) {
        self.source = source
        self.maximumStep = maximumStep
        self.report = report
    }

    /// Returns the present time. Cheap.
    public func now() -> Instant {
        // Read before the source: if the source then has an earlier time, it was set back.
        let latest = Instant(milliseconds: latest.load(ordering: .acquiring))
        let time = source()
        guard time < latest else {
            guard time > latest else { return time }
            if stands.load(ordering: .relaxed) { stands.store(false, ordering: .relaxed) }
            let (_, newest) = self.latest.max(time.milliseconds, ordering: .acquiringAndReleasing)
            return Instant(milliseconds: newest)
        }
        return wasSetBack(from: latest, to: time)
    }

    /// Returns the time after the source was set back, and reports the step.
    private func wasSetBack(from latest: Instant, to time: Instant) -> Instant {
        let back = latest - time
        guard back > maximumStep else {
            if back >= Self.negligible, !stands.exchange(true, ordering: .relaxed) { report(.stands(back: back)) }
            return latest
        }
        let (isFirst, _) = self.latest.compareExchange(
            expected: latest.milliseconds, desired: time.milliseconds, ordering: .acquiringAndReleasing)
        if isFirst { report(.follows(back: back)) }
        return time
    }

    /// Moves the clock forward to a time that was read from the database. A time that is ahead of the source by more
    /// than the maximum step is ignored, because it was stored before the source was corrected.
    public func advance(to time: Instant) {
        guard time.milliseconds > latest.load(ordering: .acquiring), time - source() <= maximumStep else { return }
        latest.max(time.milliseconds, ordering: .acquiringAndReleasing)
    }
}

extension DispatchGroup {
    /// Blocks until the group is empty, or until the deadline. In contrast to `wait(timeout:)`, which measures by the
    /// wall clock on Linux, the deadline does not move when somebody sets that clock.
    public func wait(before deadline: DispatchTime) {
        let ended = DispatchSemaphore(value: 0)
        let queue = DispatchQueue(label: "deadline")
        notify(queue: queue) { ended.signal() }
        queue.asyncAfter(deadline: deadline) { ended.signal() }
        ended.wait()
    }
}
