public import Chronology

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
