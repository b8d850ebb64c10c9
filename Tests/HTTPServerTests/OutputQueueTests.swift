import Testing

@testable import HTTPServer

@Suite struct OutputQueueTests {
    private static let large = [UInt8](repeating: 1, count: OutputQueue.largeBody)

    private static func lengths(_ queue: borrowing OutputQueue) -> [Int] {
        queue.withNextPieces { [$0.count, $1.count, $2.count] }
    }

    @Test func `A large body is sent from where it is`() {
        var queue = OutputQueue()
        let large = Self.large
        queue.bytes.append("head")
        queue.append(body: large)
        queue.bytes.append("next")
        queue.append(body: large)
        let isTheArray = queue.withNextPieces { _, body, _ in
            large.withUnsafeBytes { $0.baseAddress == body.baseAddress }
        }
        #expect(isTheArray)
        #expect(Self.lengths(queue) == [4, large.count, 4])
        queue.consume(4 + large.count)
        #expect(Self.lengths(queue) == [4, large.count, 0])
    }

    @Test func `Small bodies go out with one call`() {
        var queue = OutputQueue()
        for _ in 0..<10 {
            queue.bytes.append("head")
            queue.append(body: Array(Self.large.dropLast()))
        }
        #expect(Self.lengths(queue) == [10 * (4 + OutputQueue.largeBody - 1), 0, 0])
    }

    @Test(arguments: [1, 3, 1_000, 16_384, 16_390, 1_000_000])
    func `Bytes go out in order however many the kernel takes`(step: Int) {
        var queue = OutputQueue()
        var expected: [UInt8] = []
        for length in [0, 5, 20_000, 16_384, 100, 17_000, 0] {
            let body = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ length) }
            let head = Array("<\(length)>".utf8)
            queue.bytes.append(head)
            queue.append(body: body)
            expected += head + body
        }
        var sent: [UInt8] = []
        while !queue.isEmpty {
            #expect(queue.count == expected.count - sent.count)
            let next = queue.withNextPieces { [UInt8]($0) + $1 + $2 }.prefix(step)
            sent += next
            queue.consume(next.count)
        }
        #expect(sent == expected)
        #expect(queue.count == 0)
    }
}
