import Bucketing
public import Dispatch
public import Storage
internal import Synchronization

/// Passes events to the store, many in one transaction, but not so many that other changes wait long.
///
/// There are two kinds of submissions, which differ when the queue is full or the store is overloaded:
/// - Exposures that decisions cause (``add(_:onFailure:)``). Requests do not wait for them. If the queue is full, these
///   exposures are dropped and counted. If the store is overloaded, they are submitted again before later ones.
/// - Events that clients send (``record(_:)``). They are acknowledged when they are durable. In both cases they are
///   refused at once, so that the client tries again later.
///
/// At most one transaction is in progress. ``submit(_:)`` begins a transaction if none is in progress. When the
/// transaction ends, ``writeNext()`` begins the next one, as long as there are submissions.
public final class EventQueue: Sendable {
    /// Receives the outcomes of a submission: one for each event, in the order of the events.
    public typealias Completion = @Sendable (Result<[EventOutcome], StorageError>) -> Void

    /// Events that are stored together: all or none.
    private struct Submission {
        let events: [ReceivedEvent]
        /// The approximate size in memory, in bytes.
        let bytes: Int
        /// Whether a request waits for the result.
        let isAwaited: Bool
        let completion: Completion
        /// The approximate size without the events in bytes, including the values that the completion captures.
        private static let overhead = 512

        init(events: [UserEvent], isAwaited: Bool = false, completion: @escaping Completion) {
            let now = DispatchTime.now().uptimeNanoseconds
            self.events = events.map { ReceivedEvent($0, receivedAt: now) }
            bytes = events.reduce(Self.overhead) { $0 + $1.memory }
            self.isAwaited = isAwaited
            self.completion = completion
        }
    }

    private struct State {
        var submissions: [Submission] = []
        /// The index of the next submission to store. Earlier ones are stored or being stored.
        var next = 0
        /// The number of events that are not stored yet.
        var waitingEvents = 0
        /// The approximate size of the submissions that are not stored yet, in bytes.
        var waitingBytes = 0
        /// Whether a transaction is in progress.
        var isWriting = false
        var statistics = EventStatistics()

        /// The number of taken submissions after which they are removed from the array.
        private static let compaction = 4_096

        /// Takes submissions from the front of the queue until they have at least `limit` events together, or until
        /// the queue is empty.
        mutating func take(events limit: Int) -> [Submission] {
            let start = next
            var count = 0
            while next < submissions.count, count < limit {
                count += submissions[next].events.count
                next += 1
            }
            let taken = Array(submissions[start..<next])
            // Removing moves all remaining elements, so it is done for many submissions at once.
            if next == submissions.count || next >= Self.compaction {
                submissions.removeFirst(next)
                next = 0
            }
            return taken
        }
    }

    /// Stores events; calls back on any thread.
    public typealias Recording = @Sendable (_ events: [ReceivedEvent], _ completion: @escaping Completion) -> Void

    private let storeEvents: Recording
    /// The maximum number of waiting events.
    private let capacity: Int
    /// The approximate maximum size of the waiting events in memory, in bytes.
    private let capacityBytes: Int
    private let state = Mutex(State())
    /// The group is entered while ``State/isWriting``, so that ``waitUntilStored(before:)`` can wait.
    private let writing = DispatchGroup()
    /// The delay before events are submitted again to an overloaded store.
    private let pause: DispatchTimeInterval
    /// A transaction gets no further submission once it has this number of events.
    private static let batchSize = 512

    /// Creates a queue with a session of its own. A queue before a copy (``Storage/Store/isCopy``), as on an edge, has
    /// half the capacity, because such a process has less memory.
    public convenience init(store: any Store) throws(StorageError) {
        let session = try BackgroundSession(store, label: "events")
        self.init(capacity: store.isCopy ? 32_768 : 65_536) { events, completion in
            session.run { $0.record(events, completion) }
        }
    }

    /// - Parameters:
    ///   - capacity: the maximum number of waiting events.
    ///   - capacityBytes: the approximate maximum size of the waiting events in memory, in bytes.
    ///   - pause: the delay before events are submitted again to an overloaded store.
    public init(
        capacity: Int = 65_536, capacityBytes: Int = 64 << 20, pause: DispatchTimeInterval = .milliseconds(100),
        record: @escaping Recording
    ) {
        storeEvents = record
        self.capacity = capacity
        self.capacityBytes = capacityBytes
        self.pause = pause
    }

    /// Queues exposures, and returns at once.
    ///
    /// - Parameter onFailure: called if the exposures are dropped or cannot be stored, or if an experiment was not
    ///   running. The caller must then not treat them as stored: a later exposure of the same user may count.
    public func add(_ exposures: [Exposure], onFailure: @escaping @Sendable () -> Void) {
        guard !exposures.isEmpty else { return }
        let submission = Submission(events: exposures.map { .exposure($0) }) { result in
            switch result {
            case .success(let outcomes): if outcomes.contains(.notRunning) { onFailure() }
            case .failure: onFailure()
            }
        }
        guard !submit(submission) else { return }
        state.withLock { $0.statistics.dropped &+= UInt64(exposures.count) }
        onFailure()
    }

    /// Stores events, all or none, and waits until they are durable.
    ///
    /// - Throws: ``StorageError/overloaded`` if the queue is full; otherwise the error of the store.
    public func record(_ events: [UserEvent]) async throws(StorageError) -> [EventOutcome] {
        try await completed { record(events, $0) }
    }

    /// Waits until all earlier submissions are stored or have failed.
    ///
    /// - Throws: ``StorageError/overloaded`` if the queue is full or the store is overloaded.
    public func waitForEarlier() async throws(StorageError) {
        try await completed { afterEarlier($0) }
    }

    /// Stores events, all or none; see ``record(_:)``.
    func record(_ events: [UserEvent], _ completion: @escaping Completion) {
        guard !events.isEmpty else { return completion(.success([])) }
        if !submit(Submission(events: events, isAwaited: true, completion: completion)) {
            completion(.failure(.overloaded))
        }
    }

    /// Calls back when all earlier submissions are stored or have failed; see ``waitForEarlier()``. An empty submission
    /// marks the end of the earlier ones.
    func afterEarlier(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        let submission = Submission(events: [], isAwaited: true) { result in
            if case .failure(.overloaded) = result { return completion(.failure(.overloaded)) }
            completion(.success(()))
        }
        if !submit(submission) { completion(.failure(.overloaded)) }
    }

    /// Appends a submission, and begins to write if no transaction is in progress.
    ///
    /// - Returns: whether there was room.
    private func submit(_ submission: Submission) -> Bool {
        enum Step {
            case refuse, wait, write
        }
        let step = state.withLock { state -> Step in
            guard state.waitingEvents + submission.events.count <= capacity,
                state.waitingBytes + submission.bytes <= capacityBytes
            else { return .refuse }
            state.submissions.append(submission)
            state.waitingEvents += submission.events.count
            state.waitingBytes += submission.bytes
            if state.isWriting { return .wait }
            state.isWriting = true
            writing.enter()
            return .write
        }
        if step == .write { writeNext() }
        return step != .refuse
    }

    /// Blocks until all events that were added are stored or have failed.
    ///
    /// - Returns: the number of events that were still waiting at the deadline.
    public func waitUntilStored(before deadline: DispatchTime) -> Int {
        writing.wait(before: deadline)
        return statistics.waiting
    }

    /// Writes the next submissions in one transaction. If there are none, writing ends.
    private func writeNext() {
        let submissions = state.withLock { state -> [Submission] in
            let submissions = state.take(events: Self.batchSize)
            state.isWriting = !submissions.isEmpty
            return submissions
        }
        guard !submissions.isEmpty else { return writing.leave() }
        write(submissions)
    }

    /// Stores submissions in one transaction. If the store is overloaded, submissions for which a request waits fail,
    /// and the others are stored again after a pause.
    private func write(_ submissions: [Submission]) {
        storeEvents(submissions.flatMap(\.events)) { [self] result in
            if case .failure(.overloaded) = result {
                settle(submissions.filter(\.isAwaited), result)
                let others = submissions.filter { !$0.isAwaited }
                return DispatchQueue.global().asyncAfter(deadline: .now() + pause) { [self] in
                    others.isEmpty ? writeNext() : write(others)
                }
            }
            settle(submissions, result)
            writeNext()
        }
    }

    /// Counts the outcomes of submissions, and reports to each submission the outcomes of its own events.
    private func settle(_ submissions: [Submission], _ result: Result<[EventOutcome], StorageError>) {
        count(result, of: submissions)
        var start = 0
        for submission in submissions {
            let range = start..<start + submission.events.count
            submission.completion(result.map { Array($0[range]) })
            start = range.upperBound
        }
    }

    /// Counts the events of submissions that are no longer waiting.
    private func count(_ result: Result<[EventOutcome], StorageError>, of submissions: [Submission]) {
        state.withLock { state in
            for submission in submissions {
                state.waitingEvents -= submission.events.count
                state.waitingBytes -= submission.bytes
            }
            switch result {
            case .success(let outcomes):
                for (outcome, event) in zip(outcomes, submissions.lazy.flatMap(\.events)) {
                    state.statistics.count(outcome, event.event)
                }
            case .failure(.readOnly):
                for submission in submissions { state.statistics.dropped &+= UInt64(submission.events.count) }
            case .failure:
                for submission in submissions { state.statistics.failed &+= UInt64(submission.events.count) }
            }
        }
    }

    /// Counts events that an edge has sent, and that were dropped because their users had been erased.
    public func noteErased(_ count: Int) {
        if count > 0 { state.withLock { $0.statistics.erased &+= UInt64(count) } }
    }

    /// The current numbers of events by outcome.
    public var statistics: EventStatistics {
        state.withLock { state in
            var statistics = state.statistics
            statistics.waiting = state.waitingEvents
            return statistics
        }
    }
}

/// The numbers of events by outcome since the server started.
public struct EventStatistics: Sendable {
    /// Events in the queue that are not stored yet.
    public var waiting = 0
    public var storedExposures: UInt64 = 0
    public var storedGoals: UInt64 = 0
    /// Events that were stored already.
    public var repeated: UInt64 = 0
    /// Exposures that happened while their experiment was not running.
    public var notRunning: UInt64 = 0
    /// Exposures of decisions that found no room, and events that a read-only store refused.
    public var dropped: UInt64 = 0
    /// Events that could not be stored because of any other error.
    public var failed: UInt64 = 0
    /// Events that an edge had accepted before their users were erased. They are dropped.
    public var erased: UInt64 = 0

    /// Counts an event by its outcome.
    mutating func count(_ outcome: EventOutcome, _ event: UserEvent) {
        switch (outcome, event) {
        case (.repeated, _): repeated &+= 1
        case (.notRunning, _): notRunning &+= 1
        // The caller submits the event again, or finds that its user was erased. It is counted then.
        case (.outdated, _), (.removed, _): break
        case (.stored, .exposure): storedExposures &+= 1
        case (.stored, .goal): storedGoals &+= 1
        }
    }
}

extension UserEvent {
    /// The approximate size in memory while it waits, in bytes.
    fileprivate var memory: Int {
        switch self {
        case .exposure(let exposure):
            Self.memory(of: exposure.userID.string) + Self.memory(of: exposure.experimentID.string)
                + Self.memory(of: exposure.experimentKey.string) + Self.memory(of: exposure.variationID.string)
                + Self.memory(of: exposure.sdkKey) + Self.memory(with: exposure.payload)
        case .goal(let event):
            Self.memory(of: event.userID.string) + Self.memory(of: event.goal.string)
                + Self.memory(of: event.senderID?.string ?? "") + Self.memory(of: event.sdkKey)
                + Self.memory(with: event.payload)
        }
    }

    /// The size of a text's own allocation. Swift stores up to 15 bytes inline, without an allocation.
    private static func memory(of text: String) -> Int {
        text.utf8.count > 15 ? text.utf8.count + allocation : 0
    }

    /// The size of an event with its payload, in bytes.
    private static func memory(with payload: [UInt8]) -> Int {
        MemoryLayout<ReceivedEvent>.stride + payload.count + allocation
    }

    /// The approximate overhead of an allocation, in bytes.
    private static let allocation = 48
}
