import Chronology
import Dispatch
import Glibc
import Storage
import StorageSQLite
import Synchronization

/// The identity of the upstream's store, the token with which the edge authenticates itself, and the time of the
/// upstream's store. An edge uses this time for everything it stores, because its own host's clock may be wrong.
///
/// Each response of the upstream names its store and the store's time; see ``Storage/EdgeFields``. A response without
/// these fields comes from something else, such as a proxy with a maintenance page. It counts as no response, even if
/// its status is 200.
final class UpstreamIdentity: Sendable {
    /// The ``StoreGeneration/storeID``; 0 until a response has named it.
    private let storeID: Atomic<Int64>
    /// The store's time at the moment when this host was started, in milliseconds. ``now()`` adds the time since the
    /// start, which does not jump when this host's clock is set.
    private let origin: Atomic<Int64>
    /// The maximum difference between ``now()`` and the store's time, in milliseconds. Before the first response, the
    /// offset comes from the last run. Its error is unknown then, and one second is assumed.
    private let uncertainty = Atomic<Int64>(1_000)
    /// Whether the clock offset exceeds ``greatOffset``, and was reported.
    private let isFarOff = Atomic<Bool>(false)
    private let token: Mutex<String?>
    private let report: @Sendable (EdgeEvent) -> Void
    // Names of header fields in lower case, as ``check(_:status:sentAt:)`` gets them.
    private static let generationField = "\(EdgeFields.generation)".lowercased()
    private static let timeField = "\(EdgeFields.time)".lowercased()
    /// The clock offset beyond which operators are warned.
    static let greatOffset = TimeSpan.minutes(1)

    /// - Parameter state: the state in the copy's file, which has the store's id and the clock offset of the last run.
    init(_ configuration: EdgeConfiguration, _ state: EdgeState = EdgeState()) {
        token = Mutex(configuration.token)
        report = configuration.report
        storeID = Atomic(state.upstreamID)
        origin = Atomic((systemWallClock() + state.clockOffset - Self.sinceStart()).milliseconds)
    }

    /// The header field with the token; `nil` without a token.
    var authorization: String? { token.withLock { $0 }.map { "Authorization: Bearer \($0)" } }

    func replaceToken(_ secret: String?) { token.withLock { $0 = secret } }

    /// The ``StoreGeneration/storeID`` of the upstream; 0 until a response has named it.
    var upstreamID: Int64 { storeID.load(ordering: .relaxed) }

    /// How far the upstream's time is ahead of this host's clock.
    var clockOffset: TimeSpan { now() - systemWallClock() }

    /// The present time of the upstream's store, by the responses so far, or before the first one by the copy's file.
    func now() -> Instant { Instant(milliseconds: origin.load(ordering: .relaxed)) + Self.sinceStart() }

    /// Returns the earliest time of the upstream at which the edge may have received an event.
    ///
    /// The upstream drops events that an edge has received before their user was erased. The earliest possible time
    /// ensures that no such event is kept: it would restore an erased user. A later event may be dropped in error.
    ///
    /// - Parameter receivedAt: when the edge received the event, in monotonic nanoseconds.
    func earliest(of receivedAt: UInt64) -> Instant {
        let present = DispatchTime.now().uptimeNanoseconds
        let age = TimeSpan.milliseconds(Int64((present - min(present, receivedAt)) / 1_000_000))
        // Two milliseconds, because the age and the present time are rounded down to milliseconds.
        let rounding = TimeSpan.milliseconds(2)
        return now() - age - .milliseconds(uncertainty.load(ordering: .relaxed)) - rounding
    }

    /// The time since this host was started.
    static func sinceStart() -> TimeSpan {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return .milliseconds(Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// Checks that a response comes from the store that this edge follows, and reads the store's time from it.
    ///
    /// - Parameters:
    ///   - fields: the header fields of the response, with names in lower case.
    ///   - sentAt: when the request was sent; see ``sinceStart()``.
    /// - Throws: ``UpstreamError/foreign(_:)`` if it comes from something else.
    func check(
        _ fields: [(name: String, value: String)], status: Int, sentAt: TimeSpan
    ) throws(UpstreamError) {
        guard let text = fields.last(where: { $0.name == Self.generationField })?.value else {
            throw .foreign(
                "each response of Holdfast to an edge has the field \(EdgeFields.generation); one with status \(status) has none"
            )
        }
        guard text != EdgeFields.isEdge else {
            throw .foreign("--upstream must be the address of the upstream itself; it is that of another edge")
        }
        guard let generation = StoreGeneration(text) else {
            throw .foreign("\(EdgeFields.generation) must be two hexadecimal numbers; got '\(text.prefix(64))'")
        }
        let known = upstreamID
        guard known == 0 || known == generation.storeID else {
            throw .foreign(
                "this edge follows the store \(String(known, radix: 16)); another Holdfast responds, with the store "
                    + "\(String(generation.storeID, radix: 16)): correct --upstream, or delete the edge's database, but not its outbox, "
                    + "to follow that one")
        }
        if known == 0, generation.storeID != 0 { storeID.store(generation.storeID, ordering: .relaxed) }
        // A time beyond 2^48 ms, about the year 10900, is malformed. Without a limit, computations might overflow.
        if let time = fields.last(where: { $0.name == Self.timeField }).flatMap({ Int64($0.value) }),
            (0...1 << 48).contains(time)
        {
            measure(Instant(milliseconds: time), since: sentAt)
        }
    }

    /// Corrects ``origin`` by the store's time in a response.
    ///
    /// The store has read its clock at some moment between the request and the response, which gives a range for the
    /// origin. If the present origin is within the range, it may be right and stays. Otherwise it moves to the nearer
    /// end of the range.
    private func measure(_ time: Instant, since sentAt: TimeSpan) {
        let known = Instant(milliseconds: origin.load(ordering: .relaxed))
        let range = time - max(sentAt, Self.sinceStart())...time - sentAt
        let measured = min(max(known, range.lowerBound), range.upperBound)
        let width = (range.upperBound - range.lowerBound).milliseconds
        if measured != known { origin.store(measured.milliseconds, ordering: .relaxed) }
        if measured != known || width < uncertainty.load(ordering: .relaxed) {
            uncertainty.store(width, ordering: .relaxed)
        }
        let offset = clockOffset
        let isFar = !(-Self.greatOffset...Self.greatOffset).contains(offset)
        let wasFar = isFarOff.exchange(isFar, ordering: .relaxed)
        guard isFar, !wasFar else { return }
        report(.clockIsFarOff(seconds: (-offset).inSeconds))
    }
}
