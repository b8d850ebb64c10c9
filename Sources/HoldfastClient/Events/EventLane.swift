import Foundation

/// The queued events of one kind, oldest first.
struct EventLane: Sendable {
    private(set) var events: [QueuedEvent] = []
    private(set) var bytes = 0
    private(set) var postponedCount = 0
    private(set) var postponedBytes = 0

    mutating func append(_ event: QueuedEvent) {
        events.append(event)
        bytes += event.payload.count
    }

    /// - Returns: the removed events.
    @discardableResult
    mutating func remove(_ numbers: Set<UInt64>) -> [QueuedEvent] {
        var removed: [QueuedEvent] = []
        events.removeAll { event in
            guard numbers.contains(event.number) else { return false }
            removed.append(event)
            return true
        }
        for event in removed {
            bytes -= event.payload.count
            guard event.postponement != nil else { continue }
            postponedCount -= 1
            postponedBytes -= event.payload.count
        }
        return removed
    }

    // MARK: Postponed events

    /// - Parameter reasons: by event number.
    mutating func postpone(_ reasons: [UInt64: HoldfastError], at now: Date) {
        for index in events.indices {
            guard let reason = reasons[events[index].number] else { continue }
            let former = events[index].postponement
            if former == nil {
                postponedCount += 1
                postponedBytes += events[index].payload.count
            }
            events[index].postponement = .init(after: former, reason, at: now)
        }
    }

    /// Makes all events due at once.
    mutating func resume() {
        guard postponedCount > 0 else { return }
        for index in events.indices {
            guard let former = events[index].postponement else { continue }
            events[index].postponement = .init(resuming: former)
        }
    }

    /// The oldest event that the server has not postponed: it was not sent yet, or got no response.
    var oldestUntried: QueuedEvent? { events.first { $0.postponement == nil } }

    var oldestPostponed: QueuedEvent? {
        postponedCount == 0 ? nil : events.first { $0.postponement != nil }
    }

    // MARK: Due events

    /// Returns the oldest due events. For kinds that keep the order, a postponed event also delays later events of its
    /// user.
    ///
    /// - Parameter limit: maximum total size in bytes; the first event is exempt.
    func due(atMost count: Int, bytes limit: Int, at now: Date) -> [QueuedEvent] {
        var due: [QueuedEvent] = []
        var room = limit
        var resting: Set<Key?> = []
        for event in events {
            guard event.isDue(at: now) else {
                if event.kind.keepsOrder { resting.insert(event.userID) }
                continue
            }
            if !resting.isEmpty, resting.contains(event.userID) { continue }
            guard due.count < count, due.isEmpty || event.payload.count <= room else { break }
            room -= min(room, event.payload.count)
            due.append(event)
        }
        return due
    }

    /// Returns the time until the next postponed event is due; `nil` if none is postponed.
    func untilRetry(at now: Date) -> Duration? {
        guard postponedCount > 0 else { return nil }
        return events.lazy.compactMap { $0.postponement?.rest.left(at: now) }.filter { $0 > .zero }.min()
    }
}

/// A queued event, already encoded as it is sent.
struct QueuedEvent: Sendable {
    /// Sequence number within the directory.
    let number: UInt64
    let kind: EventKind
    /// A JSON object without line feeds.
    let payload: [UInt8]
    /// The postponement; `nil` for an event that was not sent yet, or whose request failed for a reason other than the
    /// event.
    var postponement: Postponement?

    /// Why and until when an event is postponed. Not stored on disk: after a restart an event is sent at once.
    final class Postponement: Sendable {
        let reason: HoldfastError
        let backoff: Backoff
        let rest: Rest

        /// The maximum pause in seconds. An event for a deleted experiment, for example, is retried once an hour.
        private static let longest: Double = 3_600

        init(after former: Postponement?, _ reason: HoldfastError, at now: Date) {
            var backoff = former?.backoff ?? Backoff(longest: Self.longest)
            self.reason = reason
            rest = Rest(start: now, duration: backoff.failed())
            self.backoff = backoff
        }

        /// Ends the pause but keeps the back-off, so that the next pause is longer.
        init(resuming former: Postponement) {
            reason = former.reason
            backoff = former.backoff
            rest = Rest(start: former.rest.start, duration: .zero)
        }
    }

    /// Whether it may be sent now.
    func isDue(at now: Date) -> Bool {
        postponement.map { $0.rest.left(at: now) == .zero } ?? true
    }

    /// The user of the event.
    var userID: Key? {
        struct Owner: Decodable {
            var userID: String

            private enum CodingKeys: String, CodingKey {
                case userID = "user_id"
            }
        }
        return (try? JSONDecoder().decode(Owner.self, from: Data(payload))).map { Key($0.userID) }
    }
}
