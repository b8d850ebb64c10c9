import Dispatch
import Foundation
import Synchronization

/// Events that wait to be sent, in a file of their own.
///
/// An event is with the operating system when ``append(_:_:)`` returns, so that it survives the end of this process
/// however it comes; a second later at the most it is on the disk (`fsync`), and survives the machine's. What was sent
/// is noted in the same file without haste: should a note be lost the event is sent again, which does no harm.
final class DurableQueue: Sendable {
    enum Refusal: Error {
        /// As many events or bytes wait as may.
        case full
        case failed(HoldfastError)
    }

    private struct State: ~Copyable {
        var log: RecordLog
        var waiting: [EventKind: [QueuedEvent]]
        var count: Int
        var bytes: Int
        var nextNumber: UInt64
        var isSynchronizing = false
        var isClosed = false
    }

    private let state: Mutex<State>
    private let maximumCount: Int
    private let maximumBytes: Int
    private let disk = DispatchQueue(label: "holdfast-client.disk", qos: .utility)

    /// The kind of a record that says which events were sent.
    private static let sentKind: UInt8 = 0
    private static let synchronizationDelay = DispatchTimeInterval.milliseconds(500)

    /// - Throws: ``HoldfastError/storage(_:)`` when the file cannot be read or made.
    init(path: String, maximumCount: Int, maximumBytes: Int) throws(HoldfastError) {
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
        var events: [UInt64: QueuedEvent] = [:]
        var last: UInt64 = 0
        let log = try RecordLog(path: path) { record in
            last = max(last, record.number)
            if record.kind == Self.sentKind {
                for number in Self.numbers(record.payload) { events[number] = nil }
            } else if let kind = EventKind(rawValue: record.kind) {
                events[record.number] = QueuedEvent(number: record.number, kind: kind, payload: record.payload)
            }
        }
        let waiting = Dictionary(grouping: events.values.sorted { $0.number < $1.number }, by: \.kind)
        let bytes = events.values.reduce(0) { $0 + $1.payload.count }
        state = Mutex(State(log: log, waiting: waiting, count: events.count, bytes: bytes, nextNumber: last + 1))
    }

    /// Events that wait.
    var count: Int { state.withLock { $0.count } }

    /// Adds an event.
    func append(_ kind: EventKind, _ payload: [UInt8]) throws(Refusal) {
        let outcome = state.withLock { state -> Result<Bool, Refusal> in
            guard !state.isClosed else { return .failure(.failed(.destroyed)) }
            guard state.count < maximumCount, payload.count <= min(maximumBytes - state.bytes, RecordLog.maximumPayload)
            else { return .failure(.full) }
            let event = QueuedEvent(number: state.nextNumber, kind: kind, payload: payload)
            do throws(HoldfastError) {
                try state.log.append(.init(kind: kind.rawValue, number: event.number, payload: payload))
            } catch {
                return .failure(.failed(error))
            }
            state.nextNumber += 1
            state.waiting[kind, default: []].append(event)
            state.count += 1
            state.bytes += payload.count
            defer { state.isSynchronizing = true }
            return .success(!state.isSynchronizing)
        }
        if try outcome.get() { synchronizeSoon() }
    }

    /// The events of a kind that have waited longest.
    ///
    /// - Parameter bytes: no more than these together, but for the first.
    func first(of kind: EventKind, atMost count: Int, bytes: Int) -> [QueuedEvent] {
        state.withLock { state in
            var room = bytes
            return Array(
                (state.waiting[kind] ?? []).prefix(count).prefix { event in
                    defer { room -= event.payload.count }
                    return room >= event.payload.count || room == bytes
                })
        }
    }

    /// All events of a kind, the oldest first.
    func all(of kind: EventKind) -> [QueuedEvent] {
        state.withLock { $0.waiting[kind] ?? [] }
    }

    /// Forgets events that need not be sent any more.
    func remove(_ events: [QueuedEvent]) {
        guard !events.isEmpty else { return }
        let numbers = Set(events.map(\.number))
        state.withLock { state in
            guard !state.isClosed else { return }
            for kind in Set(events.map(\.kind)) {
                state.waiting[kind]?.removeAll { event in
                    guard numbers.contains(event.number) else { return false }
                    state.count -= 1
                    state.bytes -= event.payload.count
                    return true
                }
            }
            note(numbers, &state)
        }
    }

    /// Notes what was sent; that it cannot be noted does no harm but to be sent again.
    private func note(_ numbers: Set<UInt64>, _ state: inout State) {
        if state.count == 0 {
            try? state.log.removeAll()
            return
        }
        // The highest number stays in the file, so that no other event is ever given it.
        try? state.log.append(.init(kind: Self.sentKind, number: state.nextNumber - 1, payload: Self.payload(numbers)))
        guard state.log.length > maximumBytes + 2 * state.bytes + 65_536 else { return }
        let events = state.waiting.values.joined().sorted { $0.number < $1.number }
        try? state.log.rewrite(events.map { .init(kind: $0.kind.rawValue, number: $0.number, payload: $0.payload) })
    }

    private func synchronizeSoon() {
        disk.asyncAfter(deadline: .now() + Self.synchronizationDelay) { [weak self] in self?.synchronize() }
    }

    /// Blocks until all events are on the disk.
    func synchronize() {
        let file = state.withLock { state in
            state.isSynchronizing = false
            return state.log.file
        }
        // Outside the lock: nobody who adds an event waits for the disk.
        try? file.synchronize()
    }

    /// No event is taken any more.
    func close() {
        synchronize()
        state.withLock { $0.isClosed = true }
    }

    private static func payload(_ numbers: Set<UInt64>) -> [UInt8] {
        numbers.reduce(into: []) { bytes, number in withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }
    }

    private static func numbers(_ payload: [UInt8]) -> [UInt64] {
        stride(from: 0, to: payload.count - 7, by: 8).map { start in
            payload[start..<start + 8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
        }
    }
}
