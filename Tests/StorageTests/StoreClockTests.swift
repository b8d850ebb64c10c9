import Chronology
import Dispatch
import Storage
import Synchronization
import TestSupport
import Testing

@Suite("Store clock")
final class StoreClockTests {
    private final class Events: Sendable {
        let all = Mutex<[StoreClock.Event]>([])
    }

    private static let start: Instant = 1_000_000_000_000
    private let source = ManualClock(now: start)
    private let events = Events()
    private let clock: StoreClock

    init() {
        clock = StoreClock(source.wallClock) { [events] event in events.all.withLock { $0.append(event) } }
    }

    @Test
    func `Time stands still while its source is behind, and then goes on with it`() {
        #expect(clock.now() == Self.start)
        for _ in 0..<3 {
            source.advance(by: .seconds(-60))
            #expect(clock.now() == Self.start)
        }
        source.advance(by: .seconds(181))
        #expect(clock.now() == Self.start + 1_000)
        #expect(events.all.withLock { $0 } == [.stands(back: 60_000)])
        source.advance(by: .seconds(-2))
        #expect(clock.now() == Self.start + 1_000)
        #expect(events.all.withLock { $0 } == [.stands(back: 60_000), .stands(back: 2_000)])
    }

    @Test
    func `A step back is followed if it is longer than a day`() {
        _ = clock.now()
        source.advance(by: -StoreClock.maximumStep)
        #expect(clock.now() == Self.start)
        source.advance(by: .milliseconds(-1))
        #expect(clock.now() == source.now && clock.now() == Self.start - StoreClock.maximumStep - 1)
        source.advance(by: .seconds(1))
        #expect(clock.now() == source.now)
        let step = StoreClock.maximumStep
        #expect(events.all.withLock { $0 } == [.stands(back: step), .follows(back: step + .milliseconds(1))])
    }

    @Test
    func `A time that was read is not gone behind, unless it is more than a day ahead`() {
        clock.advance(to: Self.start - 5)
        #expect(clock.now() == Self.start)
        clock.advance(to: Self.start + 5)
        #expect(clock.now() == Self.start + 5)
        clock.advance(to: Self.start + StoreClock.maximumStep)
        #expect(clock.now() == Self.start + StoreClock.maximumStep)
        for time in [Self.start + StoreClock.maximumStep + 1, .distantFuture] {
            clock.advance(to: time)
            #expect(clock.now() == Self.start + StoreClock.maximumStep)
        }
    }

    @Test
    func `No thread sees the time go back`() {
        let stepsBack = Mutex(0)
        DispatchQueue.concurrentPerform(iterations: 4) { [source, clock] thread in
            var random = SeededGenerator(seed: UInt64(thread))
            var last = Instant.distantPast
            for _ in 0..<2_000 {
                source.advance(by: .milliseconds(Int64.random(in: -20...21, using: &random)))
                let now = clock.now()
                if now < last { stepsBack.withLock { $0 += 1 } }
                last = now
            }
        }
        #expect(stepsBack.withLock { $0 } == 0)
    }
}
