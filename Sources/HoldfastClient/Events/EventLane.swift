import Foundation

/// The queued events of one kind, oldest first.
struct EventLane: Sendable {
    private(set) var events: [QueuedEvent] = []
    /// Size of all payloads in bytes.
    private(set) var bytes = 0
    /// Number of events that the server has postponed.
    private(set) var postponedCount = 0
    /// Size of the payloads of postponed events in bytes.
    private(set) var postponedBytes = 0

    mutating func append(_ event: QueuedEvent) {
        events.append(event)
        bytes += event.payload.count
    }

    /// Removes events by their numbers.
    ///
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

    /// Postpones events, each longer than the last time.
    ///
    /// - Parameter reasons: the reasons, by event number.
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

    /// Ends the pauses of all events, so that they are due at once.
    mutating func resume() {
        guard postponedCount > 0 else { return }
        for index in events.indices {
            guard let former = events[index].postponement else { continue }
            events[index].postponement = .init(resuming: former)
        }
    }

    /// The oldest event that the server has not postponed: it was not sent yet, or got no response.
    var oldestUntried: QueuedEvent? { events.first { $0.postponement == nil } }

    /// The oldest postponed event; `nil` if no event is postponed.
    var oldestPostponed: QueuedEvent? {
        postponedCount == 0 ? nil : events.first { $0.postponement != nil }
    }

    // MARK: Due events

    /// Returns the oldest due events. For kinds that keep the order, a postponed event also delays later events of its
    /// user.
    ///
    /// - Parameters:
    ///   - count: maximum number of events.
    ///   - limit: maximum total size in bytes; the first event is exempt, so that a large event is sent alone.
    func due(atMost count: Int, bytes limit: Int, at now: Date) -> [QueuedEvent] {
        var due: [QueuedEvent] = []
        var remainingBytes = limit
        /// The users with a postponed event, whose later events must wait for it.
        var delayedUsers: Set<Key?> = []
        for event in events {
            guard event.isDue(at: now) else {
                if event.kind.keepsOrder { delayedUsers.insert(event.userID) }
                continue
            }
            // Without delayed users the payload need not be decoded to find the user.
            if !delayedUsers.isEmpty, delayedUsers.contains(event.userID) { continue }
            guard due.count < count, due.isEmpty || event.payload.count <= remainingBytes else { break }
            remainingBytes -= min(remainingBytes, event.payload.count)
            due.append(event)
        }
        return due
    }

    /// Returns the time until the next postponed event is due; `nil` if none is postponed.
    func untilRetry(at now: Date) -> Duration? {
        guard postponedCount > 0 else { return nil }
        return events.lazy.compactMap { $0.postponement?.pause.remaining(at: now) }.filter { $0 > .zero }.min()
    }
}

/// A queued event, encoded as the JSON that is sent.
struct QueuedEvent: Sendable {
    /// Sequence number within the directory.
    let number: UInt64
    let kind: EventKind
    /// A JSON object without line feeds.
    let payload: [UInt8]
    /// `nil` for an event that was not sent yet, or whose request failed because of the server or the network.
    var postponement: Postponement?

    /// Why and until when an event is postponed. Not stored on disk: after a restart an event is sent at once.
    final class Postponement: Sendable {
        let reason: HoldfastError
        let backoff: Backoff
        let pause: Pause

        /// The maximum pause in seconds. An event for a deleted experiment, for example, is retried once an hour.
        private static let longest: Double = 3_600

        /// Begins a pause.
        ///
        /// - Parameter former: the previous postponement of the event, which makes the pause longer.
        init(after former: Postponement?, _ reason: HoldfastError, at now: Date) {
            var backoff = former?.backoff ?? Backoff(longest: Self.longest)
            self.reason = reason
            pause = Pause(start: now, duration: backoff.failed())
            self.backoff = backoff
        }

        /// Ends a pause but keeps the back-off, so that the next pause is longer.
        init(resuming former: Postponement) {
            reason = former.reason
            backoff = former.backoff
            pause = Pause(start: former.pause.start, duration: .zero)
        }
    }

    /// Whether the event may be sent now.
    func isDue(at now: Date) -> Bool {
        postponement.map { $0.pause.remaining(at: now) == .zero } ?? true
    }

    /// The user of the event, decoded from the payload; `nil` for counts of evaluations.
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
