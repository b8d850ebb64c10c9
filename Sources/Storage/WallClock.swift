#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What a store takes the time from.
public typealias WallClock = @Sendable () -> Timestamp

/// The time of the system.
@Sendable
public func systemWallClock() -> Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(time.tv_sec) * 1_000 + Timestamp(time.tv_nsec) / 1_000_000
}
