import Foundation
import Testing

@testable import HoldfastClient

@Suite struct QueueMetricsTests {
    @Test func `What of an earlier run cannot be read is logged and counted`() async throws {
        let directory = try TemporaryDirectory()
        try Data("HFLOG002".utf8).write(to: directory.url.appending(path: "queue.log"))
        let log = Log<String>()
        let first = try Client(directory: directory) {
            $0.logger = { level, message, metadata in log.add("\(level) \(message) \(metadata)") }
        }
        #expect(first.client.queueMetrics.unreadable == 1)
        #expect(log.all.count == 1 && log.all[0].hasPrefix("error queued events lost"))
        #expect(log.all[0].contains("queue.log.unreadable"))
        for goal in ["one", "two"] { first.client.track(goalID: goal, userID: "ada") }
        first.client.destroy()

        let file = directory.url.appending(path: "queue.log")
        var content = try Data(contentsOf: file).dropLast(1)
        let place = try #require(content.range(of: Data("one".utf8)))
        content[place.lowerBound] ^= 1
        try content.write(to: file)
        let second = try Client(directory: directory) {
            $0.logger = { level, message, metadata in log.add("\(level) \(message)") }
        }
        #expect(second.client.queueMetrics.unreadable == 2 && second.client.waitingEvents == 0)
        #expect(
            log.all.suffix(2) == [
                "error queued events lost: damaged, or of a later release",
                "warning the file of the queue ended with an incomplete event",
            ])
        second.client.destroy()
    }

    @Test func `An event that is too long is invalid, and the queue is not full`() async throws {
        let test = try Client()
        var notices = test.client.deliveries().makeAsyncIterator()
        test.client.track(
            goalID: "long", tags: ["text": .string(String(repeating: "x", count: 3 << 20))], userID: "ada")
        guard case .dropped(.invalid(let reason)) = await notices.next()?.outcome else {
            Issue.record("not dropped as invalid")
            return
        }
        #expect(reason == "an event must have at most 2097152 bytes as JSON")
        #expect(test.client.queueMetrics.droppedInvalid == 1 && test.client.queueMetrics.droppedQueueFull == 0)
        test.client.destroy()
    }

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
