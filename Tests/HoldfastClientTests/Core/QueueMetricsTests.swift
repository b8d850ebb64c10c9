import Foundation
import Testing

@testable import HoldfastClient

@Suite struct QueueMetricsTests {
    @Test func `Sent, refused, postponed and dropped events are counted by reason`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                guard call.path == "/v1/events" else { return Client.usual(call) }
                return .json(
                    #"""
                    {"results":[{"index":0,"status":"stored"},
                     {"index":1,"status":"refused","retriable":false,"problem":{"status":422,"detail":"too old"}},
                     {"index":2,"status":"refused","retriable":true,"problem":{"status":422,"detail":"not yet"}}]}
                    """#)
            }
        ) { $0.queueSize = 4 }
        #expect(test.client.queueMetrics == QueueMetrics())
        for number in 0..<3 { test.client.track(goalID: "goal\(number)", userID: "ada") }
        #expect(test.client.queueMetrics.waiting == 3 && test.client.queueMetrics.waitingBytes > 0)
        try? await test.client.flush()
        var metrics = test.client.queueMetrics
        #expect(metrics.sent == 1 && metrics.refused == 1 && metrics.postponed == 1 && metrics.postponements == 1)
        #expect(metrics.waiting == 1 && metrics.droppedQueueFull == 0)

        // Four new events: the postponed one makes room, a fifth finds none.
        var notices = test.client.deliveries().makeAsyncIterator()
        for number in 0..<5 { test.client.reportExposure(experiment: "e\(number)", userID: "ada") }
        for _ in 0..<2 {
            guard case .dropped = await notices.next()?.outcome else {
                Issue.record("not dropped")
                return
            }
        }
        metrics = test.client.queueMetrics
        #expect(metrics.waiting == 4 && metrics.postponed == 0 && metrics.droppedQueueFull == 2)

        test.client.track(goalID: "wrong", value: .nan, userID: "ada")
        #expect(test.client.queueMetrics.droppedInvalid == 1)
        test.client.destroy()
        test.client.track(goalID: "late", userID: "ada")
        #expect(test.client.queueMetrics.droppedStorage == 1)
    }
}
