import Foundation

/// The events of one kind that wait, the oldest first.
struct EventLane: Sendable {
    private(set) var events: [QueuedEvent] = []
    private(set) var bytes = 0
    private(set) var postponedCount = 0
    private(set) var postponedBytes = 0

    mutating func append(_ event: QueuedEvent) {
        events.append(event)
        bytes += event.payload.count
    }

    /// - Returns: those that were there.
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

    /// - Parameter reasons: by the events' numbers.
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

    /// Makes all events due.
    mutating func resume() {
        guard postponedCount > 0 else { return }
        for index in events.indices {
            guard let former = events[index].postponement else { continue }
            events[index].postponement = .init(resuming: former)
        }
    }

    var oldestPostponed: QueuedEvent? {
        postponedCount == 0 ? nil : events.first { $0.postponement != nil }
    }

    // MARK: What may be sent

    /// The oldest events that may be sent. Where the order of a user's events counts, those of a user wait for an earlier
    /// one that rests.
    ///
    /// - Parameter limit: no more bytes than these together, but for the first event.
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

    /// After which time the next of the events that rest may be sent; `nil` when none rests.
    func untilRetry(at now: Date) -> Duration? {
        guard postponedCount > 0 else { return nil }
        return events.lazy.compactMap { $0.postponement?.rest.left(at: now) }.filter { $0 > .zero }.min()
    }
}
