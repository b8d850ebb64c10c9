import Dispatch
import Foundation

/// A bounded queue of events in a file.
///
/// When ``append(_:_:)`` returns, the event is written to the operating system and survives a crash of the process.
/// `fsync` follows within a second; from then on it survives a power failure. Removals are written to the same file
/// without `fsync`: if one is lost, the event is sent again, which has no effect on the server.
///
/// Disk synchronization runs on a separate dispatch queue, without the lock that ``append(_:_:)`` takes.
final class DurableQueue: Sendable {
    enum Refusal: Error, Equatable {
        /// The queue is at its limit and holds no postponed event to drop.
        case full
        /// Not even an empty queue has room for an event of this size.
        case tooLong(maximum: Int)
        case failed(HoldfastError)
    }

    private struct State {
        var log: RecordLog
        var lanes: [EventKind: EventLane]
        var nextNumber: UInt64
        var isSynchronizing = false
        var isCompacting = false
        var isClosed = false

        var count: Int { lanes.values.reduce(0) { $0 + $1.events.count } }
        var bytes: Int { lanes.values.reduce(0) { $0 + $1.bytes } }
    }

    private let state: Locked<State>
    private let path: String
    private let maximumCount: Int
    private let maximumBytes: Int
    /// The parts of the file of earlier runs that could not be read.
    let losses: RecordLog.Losses
    private let disk = DispatchQueue(label: "holdfast-client.disk", qos: .utility)

    /// Kind of the records that list removed events.
    private static let sentKind: UInt8 = 0
    /// The number of logins that a full queue still accepts.
    private static let extraLogins = 100
    /// The divisor of the queue's limits for one kind: even if the queue is full of other kinds, it has room for a
    /// tenth of the limits of each kind.
    private static let extraShare = 10
    private static let synchronizationDelay = DispatchTimeInterval.milliseconds(500)

    /// - Throws: ``HoldfastError/storage(_:)`` if the file cannot be read or created.
    init(path: String, maximumCount: Int, maximumBytes: Int) throws(HoldfastError) {
        self.path = path
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
        var events: [UInt64: QueuedEvent] = [:]
        var last: UInt64 = 0
        /// Events of kinds that only a later release has.
        var unknown: Set<UInt64> = []
        let log = try RecordLog(path: path) { record in
            last = max(last, record.number)
            if record.kind == Self.sentKind {
                let numbers = Self.numbers(record.payload)
                for number in numbers { events[number] = nil }
                unknown.subtract(numbers)
            } else if let kind = EventKind(rawValue: record.kind) {
                events[record.number] = QueuedEvent(number: record.number, kind: kind, payload: record.payload)
            } else {
                unknown.insert(record.number)
            }
        }
        var losses = log.losses
        losses.records += unknown.count
        self.losses = losses
        let lanes = events.values.sorted { $0.number < $1.number }.reduce(into: [EventKind: EventLane]()) {
            lanes, event in
            lanes[event.kind, default: EventLane()].append(event)
        }
        state = Locked(State(log: log, lanes: lanes, nextNumber: last + 1))
    }

    /// Number of queued events.
    var count: Int { state.withLock { $0.count } }

    /// Number and size of all events, and number of the postponed ones.
    var load: (count: Int, bytes: Int, postponed: Int) {
        state.withLock { state in
            (state.count, state.bytes, state.lanes.values.reduce(0) { $0 + $1.postponedCount })
        }
    }

    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Number of events of a kind that have not been sent yet.
    func untriedCount(of kind: EventKind) -> Int {
        state.withLock { state in state.lanes[kind].map { $0.events.count - $0.postponedCount } ?? 0 }
    }

    /// Whether an event of a kind that has not been sent yet has such a payload.
    func containsUntried(_ kind: EventKind, where fits: ([UInt8]) -> Bool) -> Bool {
        lane(kind).events.contains { $0.postponement == nil && fits($0.payload) }
    }

    /// Adds an event. A full queue drops its oldest postponed events. Each kind may exceed the limits to some extent,
    /// so that one kind cannot displace the others. Logins are not dropped, because without them the server cannot
    /// attribute other events to the account.
    ///
    /// - Returns: the dropped events.
    @discardableResult
    func append(_ kind: EventKind, _ payload: [UInt8]) throws(Refusal) -> [QueuedEvent] {
        let (outcome, isFirst) = state.withLock { state -> (Result<[QueuedEvent], Refusal>, Bool) in
            guard !state.isClosed else { return (.failure(.failed(.destroyed)), false) }
            let maximum = min(maximumBytes, RecordLog.maximumPayload)
            guard payload.count <= maximum else { return (.failure(.tooLong(maximum: maximum)), false) }
            guard hasRoom(for: kind, payload.count, state) else { return (.failure(.full), false) }
            let event = QueuedEvent(number: state.nextNumber, kind: kind, payload: payload)
            do throws(HoldfastError) {
                try state.log.append(.init(kind: kind.rawValue, number: event.number, payload: payload))
            } catch {
                return (.failure(.failed(error)), false)
            }
            state.nextNumber += 1
            state.lanes[kind, default: EventLane()].append(event)
            defer { state.isSynchronizing = true }
            return (.success(dropTooMany(&state)), !state.isSynchronizing)
        }
        if isFirst { synchronizeSoon() }
        return try outcome.get()
    }

    /// Whether an event fits once all postponed events are dropped.
    private func hasRoom(for kind: EventKind, _ length: Int, _ state: borrowing State) -> Bool {
        let lane = state.lanes[kind] ?? EventLane()
        if kind == .login {
            if lane.events.count < Self.extraLogins { return true }
        } else if lane.events.count < maximumCount / Self.extraShare,
            lane.bytes + length <= maximumBytes / Self.extraShare
        {
            return true
        }
        let kept = state.lanes.values.reduce((count: 0, bytes: 0)) { sum, lane in
            (sum.count + lane.events.count - lane.postponedCount, sum.bytes + lane.bytes - lane.postponedBytes)
        }
        return kept.count < maximumCount && length <= maximumBytes - kept.bytes
    }

    private func dropTooMany(_ state: inout State) -> [QueuedEvent] {
        var dropped: [QueuedEvent] = []
        while state.count > maximumCount || state.bytes > maximumBytes,
            let oldest = state.lanes.filter({ $0.key != .login }).values.compactMap(\.oldestPostponed)
                .min(by: { $0.number < $1.number })
        {
            state.lanes[oldest.kind]?.remove([oldest.number])
            dropped.append(oldest)
        }
        note(dropped, &state)
        return dropped
    }

    // MARK: Queued events

    /// Returns the oldest due events of a kind; none once the queue is closed, because a closed queue cannot remove what
    /// was delivered. A login is due once all older events were sent at least once.
    ///
    /// - Parameter bytes: maximum total size; the first event is exempt.
    func first(of kind: EventKind, atMost count: Int, bytes: Int, at now: Date) -> [QueuedEvent] {
        let (lane, oldest) = state.withLock { state -> (EventLane, UInt64?) in
            guard !state.isClosed else { return (EventLane(), nil) }
            guard kind == .login else { return (state.lanes[kind] ?? EventLane(), nil) }
            let others = state.lanes.filter { $0.key.precedesLogins }.values
            return (state.lanes[.login] ?? EventLane(), others.compactMap { $0.oldestUntried?.number }.min())
        }
        let due = lane.due(atMost: count, bytes: bytes, at: now)
        guard let oldest else { return due }
        return due.filter { $0.number < oldest }
    }

    /// Returns why a delivered login must be sent again; `nil` if it need not. While an older event of the anonymous
    /// user waits, the merge does not include that event.
    func reasonToRepeat(_ event: QueuedEvent) -> HoldfastError? {
        guard event.kind == .login else { return nil }
        return state.withLock { state in
            state.lanes.filter { $0.key.precedesLogins }.values.compactMap { $0.events.first }
                .filter { $0.number < event.number }.compactMap { $0.postponement?.reason }.first
        }
    }

    /// Returns all events of a kind, oldest first.
    func all(of kind: EventKind) -> [QueuedEvent] { lane(kind).events }

    /// Returns the time until the next postponed event of a kind is due; `nil` if none is postponed.
    func untilRetry(of kind: EventKind, at now: Date) -> Duration? { lane(kind).untilRetry(at: now) }

    /// Returns why the oldest postponed event of a kind was postponed; `nil` if none is.
    func reasonToWait(of kind: EventKind) -> HoldfastError? { lane(kind).oldestPostponed?.postponement?.reason }

    /// Returns a copy that can be searched outside the lock.
    private func lane(_ kind: EventKind) -> EventLane {
        state.withLock { $0.lanes[kind] ?? EventLane() }
    }

    /// Returns those of the events that are still queued.
    func waiting(_ events: [QueuedEvent]) -> [QueuedEvent] {
        let numbers = Set(events.map(\.number))
        return Set(events.map(\.kind)).flatMap { all(of: $0).filter { numbers.contains($0.number) } }
    }

    /// Postpones events of a kind, each with its own back-off.
    ///
    /// - Parameter reasons: by event number.
    func postpone(_ reasons: [UInt64: HoldfastError], of kind: EventKind, at now: Date) {
        guard !reasons.isEmpty else { return }
        state.withLock { $0.lanes[kind]?.postpone(reasons, at: now) }
    }

    /// Makes all events of a kind due at once.
    func resume(_ kind: EventKind) {
        state.withLock { $0.lanes[kind]?.resume() }
    }

    /// Removes events that were delivered or refused.
    ///
    /// - Returns: those that were still queued.
    @discardableResult
    func remove(_ events: [QueuedEvent]) -> [QueuedEvent] {
        guard !events.isEmpty else { return [] }
        let numbers = Set(events.map(\.number))
        return state.withLock { state in
            guard !state.isClosed else { return [] }
            let removed = Set(events.map(\.kind)).flatMap { state.lanes[$0]?.remove(numbers) ?? [] }
            note(removed, &state)
            return removed
        }
    }

    // MARK: The file

    /// Writes a removal record. If that fails the events are sent again after a restart, which is harmless.
    private func note(_ gone: [QueuedEvent], _ state: inout State) {
        guard !gone.isEmpty else { return }
        if state.count == 0 {
            try? state.log.removeAll()
            return
        }
        // Keeps the highest number in the file, so that it is never reused.
        let payload = Self.payload(gone.map(\.number))
        try? state.log.append(.init(kind: Self.sentKind, number: state.nextNumber - 1, payload: payload))
        guard isTooLong(state), !state.isCompacting else { return }
        state.isCompacting = true
        disk.async { [weak self] in self?.compact() }
    }

    private func isTooLong(_ state: borrowing State) -> Bool {
        state.log.length > maximumBytes + 2 * state.bytes + 65_536
    }

    /// Rewrites the file with the queued events only, plus those that were appended meanwhile.
    private func compact() {
        while true {
            let (lanes, position) = state.withLock { ($0.lanes, $0.log.position) }
            let records = lanes.values.flatMap(\.events).sorted { $0.number < $1.number }.map { event in
                RecordLog.Record(kind: event.kind.rawValue, number: event.number, payload: event.payload)
            }
            let replacement = try? RecordLog.Replacement(of: path, records)
            let isDone = state.withLock { state in
                if let replacement { try? state.log.replace(by: replacement, since: position) }
                // After a failed write the next removal tries again.
                let isDone = state.isClosed || replacement == nil || !isTooLong(state)
                if isDone { state.isCompacting = false }
                return isDone
            }
            synchronizeFile()
            try? FileDescriptor.synchronizeDirectory(URL(fileURLWithPath: path).deletingLastPathComponent().path)
            if isDone { return }
        }
    }

    private func synchronizeSoon() {
        disk.asyncAfter(deadline: .now() + Self.synchronizationDelay) { [weak self] in self?.synchronizeFile() }
    }

    private func synchronizeFile() {
        let file = state.withLock { state in
            state.isSynchronizing = false
            return state.log.file
        }
        try? file.synchronize()
    }

    /// Blocks until all events are synchronized to disk.
    func synchronize() {
        disk.sync { synchronizeFile() }
    }

    /// Closes the queue for new events.
    func close() {
        state.withLock { $0.isClosed = true }
        // Another client may open the file after this: finish pending disk work first.
        synchronize()
    }

    private static func payload(_ numbers: [UInt64]) -> [UInt8] {
        numbers.reduce(into: []) { bytes, number in withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }
    }

    private static func numbers(_ payload: [UInt8]) -> [UInt64] {
        stride(from: 0, to: payload.count - 7, by: 8).map { start in
            payload[start..<start + 8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
        }
    }
}
