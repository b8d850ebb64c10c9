import Bucketing
public import Dispatch
public import Storage
internal import Synchronization

/// Hands events to the store, many in each transaction, and never so many that other changes wait long for one.
///
/// Exposures of decisions make nobody wait: when there is no room for them they are counted and dropped, as
/// nobody was promised them; a store that is overloaded is offered them again. What was sent as an event is answered when
/// it is durable, or refused at once.
public final class EventQueue: Sendable {
    public typealias Completion = @Sendable (Result<[EventOutcome], StorageError>) -> Void

    /// What is stored as a whole or not at all.
    private struct Submission {
        let events: [ReceivedEvent]
        /// About how much memory it takes.
        let bytes: Int
        /// Whether a request waits for the answer.
        let isAwaited: Bool
        let completion: Completion
        /// About what it takes beside its events, with what the completion holds on to.
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
        /// Those before `next` are on their way or stored.
        var submissions: [Submission] = []
        var next = 0
        var waitingEvents = 0
        var waitingBytes = 0
        var isWriting = false
        var statistics = EventStatistics()

        mutating func take(events limit: Int) -> [Submission] {
            let start = next
            var count = 0
            while next < submissions.count, count < limit {
                count += submissions[next].events.count
                next += 1
            }
            let taken = Array(submissions[start..<next])
            if next == submissions.count || next >= 4_096 {
                submissions.removeFirst(next)
                next = 0
            }
            return taken
        }
    }

    /// Stores events; calls back on any thread.
    public typealias Recording = @Sendable (_ events: [ReceivedEvent], _ completion: @escaping Completion) -> Void

    private let record: Recording
    private let capacity: Int
    private let capacityBytes: Int
    private let state = Mutex(State())
    /// Entered while events are on their way to the store.
    private let writing = DispatchGroup()
    /// How long to wait for a store that was overloaded.
    private let pause: DispatchTimeInterval
    /// No more submissions are added to a transaction that has so many events.
    private static let batch = 512

    /// A queue with a session of its own.
    public convenience init(store: any Store) throws(StorageError) {
        let session = try BackgroundSession(store, label: "events")
        self.init { events, completion in session.run { $0.record(events, completion) } }
    }

    /// - Parameters:
    ///   - capacity: events that may wait.
    ///   - capacityBytes: about how much memory they may take.
    public init(
        capacity: Int = 65_536, capacityBytes: Int = 64 << 20, pause: DispatchTimeInterval = .milliseconds(100),
        record: @escaping Recording
    ) {
        self.record = record
        self.capacity = capacity
        self.capacityBytes = capacityBytes
        self.pause = pause
    }

    /// Stores exposures some time soon.
    public func add(_ exposures: [Exposure], onFailure: @escaping @Sendable () -> Void) {
        guard !exposures.isEmpty else { return }
        let submission = Submission(events: exposures.map { .exposure($0) }) { result in
            if case .failure = result { onFailure() }
        }
        guard !submit(submission) else { return }
        state.withLock { $0.statistics.dropped &+= UInt64(exposures.count) }
        onFailure()
    }

    /// Stores events, all or none.
    ///
    /// - Parameter completion: called when they are durable or have failed; with ``StorageError/overloaded`` when too
    ///   many are waiting.
    public func record(_ events: [UserEvent], _ completion: @escaping Completion) {
        guard !events.isEmpty else { return completion(.success([])) }
        if !submit(Submission(events: events, isAwaited: true, completion: completion)) {
            completion(.failure(.overloaded))
        }
    }

    /// Does something when all that was added before is stored or has failed, unless the store is overloaded.
    public func afterWaiting(
        _ work: @escaping @Sendable () -> Void, ifOverloaded refused: @escaping @Sendable (StorageError) -> Void
    ) {
        let submission = Submission(events: [], isAwaited: true) { result in
            if case .failure(.overloaded) = result { refused(.overloaded) } else { work() }
        }
        if !submit(submission) { refused(.overloaded) }
    }

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
            defer { state.isWriting = true }
            if state.isWriting { return .wait }
            writing.enter()
            return .write
        }
        if step == .write { writeNext() }
        return step != .refuse
    }

    /// Blocks until what was added is stored or has failed.
    ///
    /// - Returns: how many events were still waiting when the time was over.
    public func waitUntilStored(before deadline: DispatchTime) -> Int {
        writing.wait(timeout: deadline) == .success ? 0 : statistics.waiting
    }

    private func writeNext() {
        let submissions = state.withLock { state -> [Submission] in
            let submissions = state.take(events: Self.batch)
            state.isWriting = !submissions.isEmpty
            return submissions
        }
        guard !submissions.isEmpty else { return writing.leave() }
        write(submissions)
    }

    private func write(_ submissions: [Submission]) {
        record(submissions.flatMap(\.events)) { [self] result in
            if case .failure(.overloaded) = result {
                // The others stay before what was added after them.
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

    private func settle(_ submissions: [Submission], _ result: Result<[EventOutcome], StorageError>) {
        count(result, of: submissions)
        var start = 0
        for submission in submissions {
            let range = start..<start + submission.events.count
            submission.completion(result.map { Array($0[range]) })
            start = range.upperBound
        }
    }

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

    public var statistics: EventStatistics {
        state.withLock { state in
            var statistics = state.statistics
            statistics.waiting = state.waitingEvents
            return statistics
        }
    }
}

/// What became of events since the server started.
public struct EventStatistics: Sendable {
    public var waiting = 0
    public var storedExposures: UInt64 = 0
    public var storedGoals: UInt64 = 0
    /// Known already.
    public var repeated: UInt64 = 0
    /// Exposures of decisions for which there was no room, and events while the store was read-only.
    public var dropped: UInt64 = 0
    public var failed: UInt64 = 0

    mutating func count(_ outcome: EventOutcome, _ event: UserEvent) {
        switch (outcome, event) {
        case (.repeated, _): repeated &+= 1
        case (.stored, .exposure): storedExposures &+= 1
        case (.stored, .goal): storedGoals &+= 1
        }
    }
}

extension UserEvent {
    /// About how many bytes of memory it takes while it waits.
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

    /// What a text takes outside the event: up to 15 bytes lie in it.
    private static func memory(of text: String) -> Int {
        text.utf8.count > 15 ? text.utf8.count + allocation : 0
    }

    private static func memory(with payload: [UInt8]) -> Int {
        MemoryLayout<ReceivedEvent>.stride + payload.count + allocation
    }

    /// What each piece of memory takes besides.
    private static let allocation = 48
}
