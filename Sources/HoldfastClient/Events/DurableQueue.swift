import Dispatch
import Foundation

/// A bounded queue of events in a file, with an ``EventLane`` in memory for each kind.
///
/// The file is a ``RecordLog``: an appended event is a record, and so is the removal of events. When ``append(_:_:)``
/// returns, the event is written to the operating system and survives a crash of the process. `fsync` follows within a
/// second; from then on it survives a power failure. Removals are written to the same file without `fsync`: if one is
/// lost, the event is sent again, which has no effect on the server.
///
/// Disk synchronization runs on a separate dispatch queue, without the lock that ``append(_:_:)`` takes.
final class DurableQueue: Sendable {
    enum Refusal: Error, Equatable {
        /// The queue is at its limit and holds no postponed event to drop.
        case full
        /// Not even an empty queue has room for an event of this size.
        case tooLong(maximum: Int)
        /// The file could not be written, or the queue is closed.
        case failed(HoldfastError)
    }

    private struct State {
        var log: RecordLog
        var lanes: [EventKind: EventLane]
        /// The number of the next event.
        var nextNumber: UInt64
        /// Whether a synchronization of the file is scheduled.
        var isSynchronizing = false
        /// Whether the file is being rewritten, or will be soon.
        var isCompacting = false
        var isClosed = false

        var count: Int { lanes.values.reduce(0) { $0 + $1.events.count } }
        var bytes: Int { lanes.values.reduce(0) { $0 + $1.bytes } }
    }

    private let state: Locked<State>
    private let path: String
    /// The maximum number of queued events; see ``HoldfastConfiguration/queueSize``.
    private let maximumCount: Int
    /// The maximum size of all payloads; see ``HoldfastConfiguration/queueBytes``.
    private let maximumBytes: Int
    /// The parts of the file of earlier runs that could not be read.
    let losses: RecordLog.Losses
    /// Runs the work that waits for the disk, one piece at a time.
    private let disk = DispatchQueue(label: "holdfast-client.disk", qos: .utility)

    /// Kind of the records that list the numbers of removed events.
    private static let removalKind: UInt8 = 0
    /// The number of logins that a full queue still accepts.
    private static let extraLogins = 100
    /// The divisor of the queue's limits for one kind: even if the queue is full of other kinds, it has room for a
    /// tenth of the limits of each kind.
    private static let extraShare = 10
    /// The time between an append and `fsync`, so that one `fsync` serves many events.
    private static let synchronizationDelay = DispatchTimeInterval.milliseconds(500)
    /// The size in bytes that the file may have in any case, before it is rewritten.
    private static let toleratedLength = 65_536

    /// Reads the events of earlier runs, and counts the events that could not be read.
    ///
    /// - Throws: ``HoldfastError/storage(_:)`` if the file cannot be read or created.
    init(path: String, maximumCount: Int, maximumBytes: Int) throws(HoldfastError) {
        self.path = path
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
        var events: [UInt64: QueuedEvent] = [:]
        var highestNumber: UInt64 = 0
        // The numbers of events whose kinds only a later release has.
        var unknownKinds: Set<UInt64> = []
        let log = try RecordLog(path: path) { record in
            highestNumber = max(highestNumber, record.number)
            if record.kind == Self.removalKind {
                let numbers = Self.decodeNumbers(record.payload)
                for number in numbers { events[number] = nil }
                unknownKinds.subtract(numbers)
            } else if let kind = EventKind(rawValue: record.kind) {
                events[record.number] = QueuedEvent(number: record.number, kind: kind, payload: record.payload)
            } else {
                unknownKinds.insert(record.number)
            }
        }
        var losses = log.losses
        losses.records += unknownKinds.count
        self.losses = losses
        var lanes: [EventKind: EventLane] = [:]
        for event in events.values.sorted(by: { $0.number < $1.number }) {
            lanes[event.kind, default: EventLane()].append(event)
        }
        state = Locked(State(log: log, lanes: lanes, nextNumber: highestNumber + 1))
    }

    /// Number of queued events.
    var count: Int { state.withLock { $0.count } }

    /// Number and size of all events, and number of the postponed ones.
    var load: (count: Int, bytes: Int, postponed: Int) {
        state.withLock { state in
            (state.count, state.bytes, state.lanes.values.reduce(0) { $0 + $1.postponedCount })
        }
    }

    /// Whether ``close()`` was called.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Number of events of a kind that have not been sent yet.
    func untriedCount(of kind: EventKind) -> Int {
        state.withLock { state in state.lanes[kind].map { $0.events.count - $0.postponedCount } ?? 0 }
    }

    /// Whether any event of a kind that has not been sent yet has a payload that a function accepts.
    func containsUntried(_ kind: EventKind, where accepts: ([UInt8]) -> Bool) -> Bool {
        lane(kind).events.contains { $0.postponement == nil && accepts($0.payload) }
    }

    /// Adds an event. A full queue drops its oldest postponed events. Each kind may exceed the limits to some extent,
    /// so that one kind cannot displace the others. Logins are not dropped, because without them the server cannot
    /// attribute other events to the account.
    ///
    /// - Returns: the dropped events.
    /// - Throws: the ``Refusal``; the queue is then unchanged.
    @discardableResult
    func append(_ kind: EventKind, _ payload: [UInt8]) throws(Refusal) -> [QueuedEvent] {
        let (dropped, needsSynchronization) = try state.withLock { state throws(Refusal) -> ([QueuedEvent], Bool) in
            try write(kind, payload, &state)
            let dropped = dropTooMany(&state)
            defer { state.isSynchronizing = true }
            return (dropped, !state.isSynchronizing)
        }
        if needsSynchronization { synchronizeSoon() }
        return dropped
    }

    /// Appends an event to the file and to its lane, even beyond the limits of the queue if postponed events can be
    /// dropped for it.
    private func write(_ kind: EventKind, _ payload: [UInt8], _ state: inout State) throws(Refusal) {
        guard !state.isClosed else { throw .failed(.destroyed) }
        let maximum = min(maximumBytes, RecordLog.maximumPayload)
        guard payload.count <= maximum else { throw .tooLong(maximum: maximum) }
        guard hasRoom(for: kind, payload.count, state) else { throw .full }
        let event = QueuedEvent(number: state.nextNumber, kind: kind, payload: payload)
        do throws(HoldfastError) {
            try state.log.append(.init(kind: kind.rawValue, number: event.number, payload: payload))
        } catch {
            throw .failed(error)
        }
        state.nextNumber += 1
        state.lanes[kind, default: EventLane()].append(event)
    }

    /// Whether an event of a length fits: within the share of its kind, or once all postponed events are dropped.
    private func hasRoom(for kind: EventKind, _ length: Int, _ state: borrowing State) -> Bool {
        let lane = state.lanes[kind] ?? EventLane()
        let isWithinShare =
            if kind == .login {
                lane.events.count < Self.extraLogins
            } else {
                lane.events.count < maximumCount / Self.extraShare
                    && lane.bytes + length <= maximumBytes / Self.extraShare
            }
        if isWithinShare { return true }
        var untriedCount = 0
        var untriedBytes = 0
        for lane in state.lanes.values {
            untriedCount += lane.events.count - lane.postponedCount
            untriedBytes += lane.bytes - lane.postponedBytes
        }
        return untriedCount < maximumCount && length <= maximumBytes - untriedBytes
    }

    /// Drops the oldest postponed events, other than logins, until the queue is within its limits.
    private func dropTooMany(_ state: inout State) -> [QueuedEvent] {
        var dropped: [QueuedEvent] = []
        while state.count > maximumCount || state.bytes > maximumBytes,
            let oldest = state.lanes.filter({ $0.key != .login }).values.compactMap(\.oldestPostponed)
                .min(by: { $0.number < $1.number })
        {
            state.lanes[oldest.kind]?.remove([oldest.number])
            dropped.append(oldest)
        }
        recordRemoval(of: dropped, &state)
        return dropped
    }

    // MARK: Queued events

    /// Returns the oldest due events of a kind; none once the queue is closed, because a closed queue cannot remove
    /// what was delivered. A login is due once all older events were sent at least once.
    ///
    /// - Parameter bytes: maximum total size; the first event is exempt.
    func first(of kind: EventKind, atMost count: Int, bytes: Int, at now: Date) -> [QueuedEvent] {
        let (lane, oldestUntried) = state.withLock { state -> (EventLane, UInt64?) in
            guard !state.isClosed else { return (EventLane(), nil) }
            let lane = state.lanes[kind] ?? EventLane()
            guard kind == .login else { return (lane, nil) }
            let preceding = state.lanes.filter { $0.key.precedesLogins }.values
            return (lane, preceding.compactMap { $0.oldestUntried?.number }.min())
        }
        let due = lane.due(atMost: count, bytes: bytes, at: now)
        guard let oldestUntried else { return due }
        return due.filter { $0.number < oldestUntried }
    }

    /// Returns why a delivered event must be sent again. This concerns only logins: an older event that is still
    /// postponed may belong to the anonymous user, and the merge by the login did not include it.
    ///
    /// - Returns: `nil` if the delivery of the event is complete.
    func reasonToRepeat(_ event: QueuedEvent) -> HoldfastError? {
        guard event.kind == .login else { return nil }
        return state.withLock { state in
            let preceding = state.lanes.filter { $0.key.precedesLogins }.values
            let olderEvents = preceding.compactMap { $0.events.first }.filter { $0.number < event.number }
            return olderEvents.compactMap { $0.postponement?.reason }.first
        }
    }

    /// Returns all events of a kind, oldest first.
    func all(of kind: EventKind) -> [QueuedEvent] { lane(kind).events }

    /// Returns the time until the next postponed event of a kind is due; `nil` if none is postponed.
    func untilRetry(of kind: EventKind, at now: Date) -> Duration? { lane(kind).untilRetry(at: now) }

    /// Returns why the oldest postponed event of a kind was postponed; `nil` if no event of the kind is postponed.
    func reasonToWait(of kind: EventKind) -> HoldfastError? { lane(kind).oldestPostponed?.postponement?.reason }

    /// Returns a copy that can be searched outside the lock.
    private func lane(_ kind: EventKind) -> EventLane {
        state.withLock { $0.lanes[kind] ?? EventLane() }
    }

    /// Returns the given events without those that have been removed or dropped meanwhile.
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

    /// Ends the pauses of all postponed events of a kind, so that they are due at once.
    func resume(_ kind: EventKind) {
        state.withLock { $0.lanes[kind]?.resume() }
    }

    /// Removes events that were delivered or refused.
    ///
    /// - Returns: the events that were still queued.
    @discardableResult
    func remove(_ events: [QueuedEvent]) -> [QueuedEvent] {
        guard !events.isEmpty else { return [] }
        let numbers = Set(events.map(\.number))
        return state.withLock { state in
            guard !state.isClosed else { return [] }
            let removed = Set(events.map(\.kind)).flatMap { state.lanes[$0]?.remove(numbers) ?? [] }
            recordRemoval(of: removed, &state)
            return removed
        }
    }

    // MARK: The file

    /// Writes a removal record. If that fails the events are sent again after a restart, which is harmless.
    private func recordRemoval(of events: [QueuedEvent], _ state: inout State) {
        guard !events.isEmpty else { return }
        // A file without queued events is emptied instead.
        if state.count == 0 {
            try? state.log.removeAll()
            return
        }
        // The record has the highest number that was used, so that a later run does not use it again.
        let payload = Self.encode(events.map(\.number))
        try? state.log.append(.init(kind: Self.removalKind, number: state.nextNumber - 1, payload: payload))
        guard isTooLong(state), !state.isCompacting else { return }
        state.isCompacting = true
        disk.async { [weak self] in self?.compact() }
    }

    /// Whether the file must be rewritten. This is so once the removed events take more space than the queued events
    /// and the limit of the queue together.
    private func isTooLong(_ state: borrowing State) -> Bool {
        state.log.length > maximumBytes + 2 * state.bytes + Self.toleratedLength
    }

    /// Rewrites the file with the queued events only, and the records that were appended meanwhile. The new file is
    /// written without the lock, so that events can be queued at the same time.
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

    /// Schedules `fsync`.
    private func synchronizeSoon() {
        disk.asyncAfter(deadline: .now() + Self.synchronizationDelay) { [weak self] in self?.synchronizeFile() }
    }

    /// Blocks until the file is on disk. The lock is not held meanwhile, so that events can be queued.
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

    /// Returns the payload of a removal record: the numbers of the events, 8 bytes each, little-endian.
    private static func encode(_ numbers: [UInt64]) -> [UInt8] {
        numbers.reduce(into: []) { bytes, number in withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }
    }

    /// Returns the numbers in the payload of a removal record. Fewer than 8 bytes at the end are ignored.
    private static func decodeNumbers(_ payload: [UInt8]) -> [UInt64] {
        stride(from: 0, to: payload.count - 7, by: 8).map { start in
            payload[start..<start + 8].reversed().reduce(0) { number, byte in number << 8 | UInt64(byte) }
        }
    }
}
