import JSON
import Synchronization
import Testing

@testable import Tracing

@Suite struct TracerTests {
    /// A collector that a test turns off and on.
    private final class Collector: Sendable {
        let bodies = Mutex<[[UInt8]]>([])
        let delivery: Mutex<Tracer.Delivery>
        let reports = Mutex<[String?]>([])

        init(_ delivery: Tracer.Delivery) {
            self.delivery = Mutex(delivery)
        }

        func tracer(sample: Double = 1) -> Tracer {
            Tracer(
                sample: sample, resource: [("service.name", "shop")],
                send: { body, _ in
                    self.bodies.withLock { $0.append(body) }
                    return self.delivery.withLock { $0 }
                }, report: { reason in self.reports.withLock { $0.append(reason) } })
        }

        var spans: [JSONValue] {
            bodies.withLock { $0 }.flatMap { body -> [JSONValue] in
                let resource = (try? JSONParser().parse(body))?.object?["resourceSpans"]?.array?.first?.object
                return resource?["scopeSpans"]?.array?.first?.object?["spans"]?.array ?? []
            }
        }
    }

    private func end(_ count: Int, _ tracer: Tracer) {
        for _ in 0..<count { tracer.begin(traceparent: nil, state: nil, isQuiet: false).end("work", []) }
    }

    @Test func `The stop sends what waits, in batches`() {
        let collector = Collector(.taken(rejected: 0))
        let tracer = collector.tracer()
        end(Tracer.batch + 1, tracer)
        #expect(tracer.close() == 0)
        #expect(collector.spans.count == Tracer.batch + 1)
        #expect(tracer.counts.sent == UInt64(Tracer.batch + 1))
        #expect(tracer.counts.dropped == 0)
    }

    @Test func `While the collector is away spans wait up to a limit`() {
        let collector = Collector(.failed("away"))
        let tracer = collector.tracer()
        end(Tracer.limit + 7, tracer)
        #expect(tracer.counts.dropped == 7)
        #expect(tracer.close() == Tracer.limit)
        #expect(collector.reports.withLock { $0 } == ["away"])
    }

    @Test func `What the collector refuses or rejects counts as dropped`() {
        let collector = Collector(.refused("it responds 400"))
        let tracer = collector.tracer()
        end(3, tracer)
        #expect(tracer.close() == 0)
        #expect(tracer.counts.dropped == 3)

        let second = Collector(.taken(rejected: 2))
        let other = second.tracer()
        end(5, other)
        #expect(other.close() == 0)
        #expect(other.counts.sent == 3)
        #expect(other.counts.dropped == 2)
    }

    @Test func `The part of the traces is sampled that was asked for`() {
        let tracer = Collector(.taken(rejected: 0)).tracer(sample: 0.25)
        let sampled = (0..<4_000).count { _ in
            tracer.begin(traceparent: nil, state: nil, isQuiet: false).context.isSampled
        }
        // 12 standard deviations.
        #expect((670...1_330).contains(sampled))
        let never = Collector(.taken(rejected: 0)).tracer(sample: 0)
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        #expect(never.begin(traceparent: parent, state: nil, isQuiet: true).context.isSampled)
        #expect(!never.begin(traceparent: nil, state: nil, isQuiet: false).context.isSampled)
        let always = Collector(.taken(rejected: 0)).tracer()
        #expect(!always.begin(traceparent: nil, state: nil, isQuiet: true).context.isSampled)
    }
}
