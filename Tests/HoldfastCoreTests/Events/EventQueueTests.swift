import Bucketing
import Chronology
import Definitions
import Dispatch
import Storage
import Synchronization
import TestSupport
import Testing

@testable import HoldfastCore

@Suite struct EventQueueTests {
    /// A store that answers when it is told to.
    private final class SlowStore: Sendable {
        typealias Completion = @Sendable (Result<[EventOutcome], StorageError>) -> Void
        private let waiting = Mutex<[(events: [ReceivedEvent], completion: Completion)]>([])
        private let offered = DispatchSemaphore(value: 0)

        var batches: [Int] { waiting.withLock { $0.map(\.events.count) } }
        var events: [ReceivedEvent] { waiting.withLock { $0.flatMap(\.events) } }

        @Sendable func record(_ events: [ReceivedEvent], _ completion: @escaping Completion) {
            waiting.withLock { $0.append((events, completion)) }
            offered.signal()
        }

        /// Answers the oldest transaction, or the next if there is none.
        func answer(_ error: StorageError? = nil, _ outcome: EventOutcome = .stored) {
            offered.wait()
            let first = waiting.withLock { $0.removeFirst() }
            first.completion(error.map { .failure($0) } ?? .success(first.events.map { _ in outcome }))
        }
    }

    /// What became of submissions, in the order of their answers.
    private final class Answers: Sendable {
        private let all = Mutex<[String]>([])

        var texts: [String] { all.withLock { $0 } }

        func add(_ name: String, _ result: Result<[EventOutcome], StorageError>) {
            all.withLock { $0.append((try? result.get()).map { "\(name): \($0.count)" } ?? "\(name) failed") }
        }
    }

    private let store = SlowStore()
    private let answers = Answers()

    private static func events(_ count: Int) -> [UserEvent] {
        (0..<count).map { _ in .goal(GoalEvent(userID: "u", goal: "g", value: 1, happenedAt: 0, receivedAt: 0)) }
    }

    private static func exposures(_ count: Int) -> [Exposure] {
        (0..<count).map {
            Exposure(
                userID: Identifier("\($0)"), experimentID: "e", experimentKey: "e", variationID: "a", happenedAt: 0,
                isChosen: false, sdkKey: "")
        }
    }

    private func submit(_ name: String, _ count: Int, to queue: EventQueue) {
        queue.record(Self.events(count)) { [answers] in answers.add(name, $0) }
    }

    private func addErasure(to queue: EventQueue) {
        queue.afterEarlier { [answers] result in answers.add("erasure", result.map { [] }) }
    }

    @Test func `While one transaction is under way others gather, and each request is answered by its own`() {
        let queue = EventQueue(record: store.record)
        for (name, count) in [("a", 1), ("b", 2), ("c", 3)] { submit(name, count, to: queue) }
        #expect(store.batches == [1])
        store.answer()
        #expect(store.batches == [5])
        store.answer()
        #expect(answers.texts == ["a: 1", "b: 2", "c: 3"])
        #expect(queue.statistics.storedGoals == 6)
    }

    @Test func `A transaction takes no more than a bounded number of events, but a request's are in one`() {
        let queue = EventQueue(record: store.record)
        for name in ["a", "b", "c", "d"] { submit(name, 400, to: queue) }
        store.answer()
        #expect(store.batches == [800])
        store.answer()
        #expect(store.batches == [400])
    }

    @Test func `An overloaded store is offered exposures again, before all that came later, and requests are refused`()
    {
        let queue = EventQueue(pause: .milliseconds(1), record: store.record)
        submit("a", 1, to: queue)
        submit("b", 2, to: queue)
        queue.add(Self.exposures(3)) { Issue.record("they were dropped") }
        addErasure(to: queue)
        store.answer()
        store.answer(.overloaded)
        store.answer(.overloaded)
        submit("c", 4, to: queue)
        #expect(answers.texts == ["a: 1", "b failed", "erasure failed"])
        store.answer()
        store.answer()
        #expect(queue.waitUntilStored(before: .now() + 10) == 0)
        #expect(answers.texts == ["a: 1", "b failed", "erasure failed", "c: 4"])
        #expect(queue.statistics.storedExposures == 3)
        #expect(queue.statistics.failed == 2)
    }

    @Test func `What the store does not take in time is counted`() {
        let queue = EventQueue(record: store.record)
        submit("a", 3, to: queue)
        #expect(queue.waitUntilStored(before: .now()) == 3)
    }

    @Test func `Beyond the capacity a request is refused whole, and exposures of decisions are dropped`() {
        let queue = EventQueue(capacity: 10, record: store.record)
        submit("a", 8, to: queue)
        submit("b", 3, to: queue)
        let isForgotten = Mutex(false)
        queue.add(Self.exposures(3)) { isForgotten.withLock { $0 = true } }
        #expect(answers.texts == ["b failed"])
        #expect(isForgotten.withLock { $0 })
        #expect(queue.statistics.dropped == 3)
        submit("c", 2, to: queue)
        store.answer()
        store.answer()
        #expect(answers.texts == ["b failed", "a: 8", "c: 2"])
        #expect(queue.statistics.waiting == 0)
    }

    @Test func `An exposure while its experiment was not running is new again`() {
        let queue = EventQueue(record: store.record)
        let isForgotten = Mutex(false)
        queue.add(Self.exposures(1)) { isForgotten.withLock { $0 = true } }
        store.answer(nil, .notRunning)
        #expect(isForgotten.withLock { $0 })
        #expect((queue.statistics.notRunning, queue.statistics.storedExposures, queue.statistics.failed) == (1, 0, 0))
    }

    @Test func `Events take no more memory than a bound, however few they are`() {
        let queue = EventQueue(capacityBytes: 10_000, record: store.record)
        for name in ["a", "b", "c"] {
            var event = Self.events(1)
            if case .goal(var goal) = event[0] {
                goal.payload = Array(repeating: UInt8(ascii: " "), count: 4_000)
                event = [.goal(goal)]
            }
            queue.record(event) { [answers] in answers.add(name, $0) }
        }
        #expect(answers.texts == ["c failed"])
        store.answer()
        store.answer()
        submit("d", 1, to: queue)
        store.answer()
        #expect(answers.texts == ["c failed", "a: 1", "b: 1", "d: 1"])
    }

    @Test func `Ids and the details of events count as they are in memory`() {
        let texts = ["u", "g", "i"].map { Identifier($0 + String(repeating: "x", count: 1_023)) }
        let goal = GoalEvent(
            userID: texts[0], goal: texts[1], value: 1, happenedAt: 0, receivedAt: 0, senderID: texts[2],
            sdkKey: String(repeating: "k", count: 1_024), payload: [UInt8](repeating: 0x20, count: 4_096))
        let exposure = Exposure(
            userID: texts[0], experimentID: texts[1], experimentKey: texts[1], variationID: texts[2], happenedAt: 0,
            isChosen: false, sdkKey: "", payload: [UInt8](repeating: 0x20, count: 4_096))
        for event in [UserEvent.goal(goal), .exposure(exposure)] {
            // What a hundred of them take in texts and details alone does not fit.
            let queue = EventQueue(capacityBytes: 100 * 8_192, record: store.record)
            for _ in 0..<100 { queue.record([event]) { _ in } }
            #expect((80..<100).contains(queue.statistics.waiting))
        }
    }

    @Test func `Events go to the store with the moment when they were received, however long they wait`() {
        let queue = EventQueue(record: store.record)
        let start = DispatchTime.now().uptimeNanoseconds
        submit("a", 1, to: queue)
        queue.add(Self.exposures(2)) { Issue.record("they were dropped") }
        let end = DispatchTime.now().uptimeNanoseconds
        store.answer()
        let moments = store.events.map(\.receivedAt)
        #expect(moments.count == 2 && moments.allSatisfy { (start...end).contains($0) })
        store.answer()
    }

    @Test func `What the store fails to take is told to whom it concerns, and the next is tried`() {
        let queue = EventQueue(record: store.record)
        submit("a", 1, to: queue)
        submit("b", 1, to: queue)
        store.answer(.unavailable(reason: "full"))
        store.answer()
        #expect(answers.texts == ["a failed", "b: 1"])
        #expect(queue.statistics.failed == 1)
    }

    @Test func `What is to happen after what waits happens then`() {
        let queue = EventQueue(record: store.record)
        submit("a", 1, to: queue)
        submit("b", 1, to: queue)
        addErasure(to: queue)
        store.answer()
        #expect(answers.texts == ["a: 1"])
        store.answer()
        #expect(answers.texts == ["a: 1", "b: 1", "erasure: 0"])
    }

    @Test func `The exposures of a user who is forgotten are new, and those of others stay known`() {
        let known = KnownExposures(capacity: 100)
        func insert(_ user: Identifier, at now: Instant = 0) -> Bool {
            known.insert(user, "e", "a", isChosen: false, at: now).isKnown
        }
        #expect(!insert("u") && !insert("v"))
        for time in [1, 30_000, 60_000, 60_001] as [Instant] {
            known.forget([ErasureRules.hash("u")])
            #expect(!insert("u", at: time))
            #expect(insert("u", at: time))
        }
        #expect(insert("v", at: 60_001))
        // The number of the user is dropped after the exposures that were added before it.
        #expect(!insert("u", at: 180_002))
        #expect(insert("u", at: 180_003))
    }

    @Test func `Forgotten users end a generation as exposures do`() {
        let known = KnownExposures(capacity: 100)
        func isKnown(_ user: Identifier) -> Bool { known.insert(user, "e", "a", isChosen: false, at: 0).isKnown }
        #expect(!isKnown("u"))
        known.forget(1...99)
        #expect(isKnown("u"))
        known.forget(100...199)
        #expect(isKnown("u"))
        known.forget(200...299)
        #expect(!isKnown("u"))
    }

    @Test func `An exposure that was not stored is new again, and the others stay known`() {
        let known = KnownExposures(capacity: 100)
        func insert(_ user: Identifier, at now: Instant) -> (isKnown: Bool, key: Int) {
            known.insert(user, "e", "a", isChosen: false, at: now)
        }
        for time in [0, 60_000] as [Instant] {
            known.remove([insert("u", at: time).key])
            #expect(insert("v", at: time).isKnown == (time > 0))
            #expect(!insert("u", at: time).isKnown)
            #expect(insert("u", at: time).isKnown)
        }
    }

    @Test func `An edge knows an exposure for an hour or two, unless the user is forgotten`() {
        let known = KnownExposures.ofEdge()
        func insert(_ user: Identifier, at now: Instant = 0) -> Bool {
            known.insert(user, "e", "a", isChosen: false, at: now).isKnown
        }
        #expect(!insert("u") && !insert("v"))
        known.forget([ErasureRules.hash("v")])
        #expect(insert("u", at: 3_600_000) && !insert("v", at: 3_600_000))
        #expect(!insert("u", at: 7_200_001))
    }

    @Test func `An exposure is known once it was seen, until another variation or a minute or two later`() {
        let known = KnownExposures(capacity: 100)
        func insert(_ user: Identifier, _ variation: Identifier = "a", forced: Bool = false, at now: Instant = 0)
            -> Bool
        {
            known.insert(user, "e", variation, isChosen: forced, at: now).isKnown
        }
        #expect(!insert("u"))
        #expect(insert("u"))
        #expect(!insert("u", "b"))
        #expect(!insert("u", forced: true))
        #expect(insert("u", at: 60_000))
        #expect(!insert("u", at: 120_001))
        // After a long pause nothing is known, not even for the rest of a generation.
        #expect(!insert("u", at: 600_000))
    }
}
