import Chronology
import Dispatch
import Storage
import Synchronization

/// The clock of the database server, which all hosts use, so that their times agree.
///
/// The clock is this host's monotonic clock plus a difference. The difference is measured every few seconds with a
/// query for the server's time; each direction is assumed to take half of the round trip. The measurement with the
/// smallest possible error counts.
///
/// The database stores the latest time of any host. So time does not go back when another machine, whose clock is
/// behind, becomes the server.
final class ServerTime: Sendable {
    let clock: StoreClock
    private let difference: Difference
    /// The measurement that ``difference`` comes from. The initial one has the longest possible round trip, so that any
    /// other replaces it.
    private let last = Mutex(Measurement(difference: 0, roundTrip: .max, receivedAt: 0))

    /// The server's clock minus the monotonic clock, in nanoseconds.
    private final class Difference: Sendable {
        let value = Atomic<Int64>(0)
    }

    /// A measurement of the difference, in nanoseconds.
    fileprivate struct Measurement {
        let difference: Int64
        /// The time from the query to its result: twice the greatest possible error of ``difference``.
        let roundTrip: Int64
        /// When the result was received; see ``ServerTime/monotonic``.
        let receivedAt: Int64
    }

    /// The number of measurements when the store is opened. The best one is used.
    private static let firstMeasurements = 8
    /// Two clocks are assumed to drift apart by at most one nanosecond in this many nanoseconds.
    fileprivate static let drift: Int64 = 10_000

    /// Selects the server's time in microseconds, and the latest time of any host in milliseconds.
    static let read = Statement("server_time", readQuery)
    private static let readQuery =
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, time FROM latest_time"

    /// Stores the latest time, unless the stored time is later. A stored time that is too far ahead is wrong, and is
    /// replaced; see ``StoreClock``.
    static let keep = Statement(
        "keep_latest_time",
        "UPDATE latest_time SET time = $1 WHERE time < $1 OR time - $1 > \(StoreClock.maximumStep.milliseconds)")

    init(_ settings: StoreSettings) {
        let difference = Difference()
        self.difference = difference
        let serverClock: WallClock = {
            Instant(milliseconds: (difference.value.load(ordering: .relaxed) + Self.monotonic) / 1_000_000)
        }
        clock = StoreClock(settings.clock ?? serverClock, report: settings.reportClock)
    }

    /// Nanoseconds of this host's monotonic clock.
    static var monotonic: Int64 { Int64(clamping: DispatchTime.now().uptimeNanoseconds) }

    /// Reads the time when the store is opened, and blocks until done.
    ///
    /// - Throws: an error with ``PostgreSQLError/unsupported`` if the table `latest_time` does not have one row; other
    ///   errors of the server or the connection.
    func read(_ handle: Handle) throws(PostgreSQLError) {
        for _ in 0..<Self.firstMeasurements {
            let sentAt = Self.monotonic
            let row = try handle.execute(Self.readQuery).first?.compactMap { $0.flatMap { Int64($0) } } ?? []
            guard row.count == 2 else {
                throw PostgreSQLError(
                    state: PostgreSQLError.unsupported, message: "its table latest_time must have one row")
            }
            take(microseconds: row[0], latest: Instant(milliseconds: row[1]), sentAt: sentAt)
        }
    }

    /// Uses a result of ``read`` that was received just now.
    ///
    /// - Parameters:
    ///   - microseconds: the server's time.
    ///   - latest: the latest time of any host.
    ///   - sentAt: when the query was sent; see ``monotonic``.
    func take(microseconds: Int64, latest: Instant, sentAt: Int64) {
        let receivedAt = Self.monotonic
        let roundTrip = receivedAt - sentAt
        let (time, overflow) = microseconds.multipliedReportingOverflow(by: 1_000)
        guard !overflow else { return }
        let measured = Measurement(
            difference: time - sentAt - roundTrip / 2, roundTrip: roundTrip, receivedAt: receivedAt)
        last.withLock { last in
            guard measured.replaces(last) else { return }
            last = measured
            difference.value.store(measured.difference, ordering: .relaxed)
        }
        clock.advance(to: latest)
    }
}

extension ServerTime.Measurement {
    /// Whether this measurement replaces an earlier one: it is more exact than the earlier one is by now, or it shows
    /// that a clock was set.
    fileprivate func replaces(_ earlier: Self) -> Bool {
        guard earlier.roundTrip < .max else { return true }
        // Twice the greatest possible error of the earlier measurement, which has grown with its age.
        let earlierError = earlier.roundTrip + (receivedAt - earlier.receivedAt) / ServerTime.drift
        if roundTrip <= earlierError { return true }
        let greatestDeviation = UInt64((roundTrip + earlierError) / 2)
        return (difference - earlier.difference).magnitude > greatestDeviation
    }
}
