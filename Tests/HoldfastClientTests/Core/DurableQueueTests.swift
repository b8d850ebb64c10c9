import Foundation
import Testing

@testable import HoldfastClient

@Suite struct DurableQueueTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func open(count: Int = 1_000, bytes: Int = 1 << 20) throws -> DurableQueue {
        try DurableQueue(path: directory.path("queue.log"), maximumCount: count, maximumBytes: bytes)
    }

    private func texts(_ queue: DurableQueue, _ kind: EventKind = .goal) -> [String] {
        queue.all(of: kind).map { String(decoding: $0.payload, as: UTF8.self) }
    }

    private func add(_ text: String, _ kind: EventKind = .goal, to queue: DurableQueue) throws {
        try queue.append(kind, Array(text.utf8))
    }

    @Test func `Events are there again in their order after the file is opened anew`() throws {
        let queue = try open()
        for text in ["one", "two", "three"] { try add(text, to: queue) }
        try add("a save", .save, to: queue)
        let again = try open()
        #expect(texts(again) == ["one", "two", "three"])
        #expect(texts(again, .save) == ["a save"])
        #expect(again.count == 4)
    }

    @Test func `A file of the first version is read, and goes on`() throws {
        // Goal 1, which was sent, exposure 2, and goal 3, which waits.
        let file = try #require(
            Data(
                base64Encoded: """
                    SEZMT0cwMDEYAAAAuNi/agUBAAAAAAAAAHsiZ29hbCI6InNlbnQifR4AAACLOIWxBAIAAAAAAAAAeyJleHBlcmltZW50IjoiNzAwMSJ9\
                    GQAAAGwV/m0FAwAAAAAAAAB7ImdvYWwiOiJ3YWl0cyJ9EQAAANFFjSwAAwAAAAAAAAABAAAAAAAAAA==
                    """))
        try file.write(to: URL(fileURLWithPath: directory.path("queue.log")))
        let queue = try open()
        #expect(texts(queue) == [#"{"goal":"waits"}"#])
        #expect(texts(queue, .exposure) == [#"{"experiment":"7001"}"#])
        try add("next", to: queue)
        queue.remove(queue.all(of: .exposure))
        #expect(texts(try open()) == [#"{"goal":"waits"}"#, "next"])
    }

    @Test func `Delivered events are gone after a restart, and others are still queued`() throws {
        let queue = try open()
        for text in ["one", "two", "three"] { try add(text, to: queue) }
        queue.remove([queue.all(of: .goal)[1]])
        let again = try open()
        #expect(texts(again) == ["one", "three"])
        try add("four", to: again)
        again.remove(Array(again.all(of: .goal).prefix(2)))
        #expect(texts(try open()) == ["four"])
    }

    @Test func `A queue that was emptied takes no room`() throws {
        let queue = try open()
        for number in 0..<100 { try add("event \(number)", to: queue) }
        queue.remove(queue.all(of: .goal))
        #expect(try Data(contentsOf: URL(fileURLWithPath: directory.path("queue.log"))).count == 8)
        try add("after", to: queue)
        #expect(texts(try open()) == ["after"])
    }

    @Test(arguments: 1...24) func `A record that is cut off is forgotten, and those before it are not`(_ missing: Int)
        throws
    {
        let queue = try open()
        try add("whole", to: queue)
        try add("torn off", to: queue)
        let file = URL(fileURLWithPath: directory.path("queue.log"))
        try Data(contentsOf: file).dropLast(missing).write(to: file)
        let again = try open()
        #expect(texts(again) == ["whole"])
        #expect(again.losses == RecordLog.Losses(end: 25 - missing))
        try add("next", to: again)
        #expect(texts(try open()) == ["whole", "next"])
    }

    @Test func `A damaged record is left out, and those behind it are not`() throws {
        let queue = try open()
        for text in ["one", "two", "three"] { try add(text, to: queue) }
        let file = URL(fileURLWithPath: directory.path("queue.log"))
        var content = try Data(contentsOf: file)
        let place = try #require(content.range(of: Data("two".utf8)))
        content[place.lowerBound] ^= 1
        try content.write(to: file)
        let again = try open()
        #expect(texts(again) == ["one", "three"])
        #expect(again.losses == RecordLog.Losses(records: 1))
    }

    @Test func `However the file is damaged, the queue opens, tells of it, and goes on`() throws {
        let queue = try open()
        for number in 0..<20 { try add("event \(number)", number % 2 == 0 ? .goal : .exposure, to: queue) }
        queue.remove(Array(queue.all(of: .goal).prefix(3)))
        let file = URL(fileURLWithPath: directory.path("queue.log"))
        let whole = try Data(contentsOf: file)
        var random = SplitMix(state: 42)
        for _ in 0..<100 {
            var content = whole
            var isCut = false
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let place = Int.random(in: 0..<content.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: content[place] = UInt8.random(in: 0...255, using: &random)
                case 1: (content, isCut) = (content.prefix(place + 1), true)
                default: content.insert(contentsOf: [0, 1, 255].prefix(place % 4), at: place)
                }
            }
            try content.write(to: file)
            let damaged = try open()
            let known = texts(damaged) + texts(damaged, .exposure)
            #expect(known.allSatisfy { $0.hasPrefix("event ") })
            // A file that was cut off between two records has no trace of that.
            if known.count < 17, !isCut { #expect(damaged.losses != RecordLog.Losses()) }
            try add("next", to: damaged)
            #expect(texts(try open()).last == "next")
        }
    }

    @Test func `A file with an unknown header is kept aside, the newest of several, and the queue is begun anew`()
        throws
    {
        let file = URL(fileURLWithPath: directory.path("queue.log"))
        for text in ["something else", "HFLOG002 of a later release", "\0\0\0\0\0\0\0\0\0\0"] {
            try Data(text.utf8).write(to: file)
            let queue = try open()
            #expect(queue.count == 0)
            let aside = try #require(queue.losses.file)
            #expect(try String(contentsOf: URL(fileURLWithPath: aside), encoding: .utf8) == text)
            try add("one", to: queue)
            let again = try open()
            #expect(texts(again) == ["one"] && again.losses == RecordLog.Losses())
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.url.path).count == 2)
    }

    @Test func `Nothing is written before the first event, so that a full disk stops no app`() throws {
        let file = URL(fileURLWithPath: directory.path("queue.log"))
        let queue = try open()
        queue.remove([])
        #expect(try Data(contentsOf: file).isEmpty)
        try add("one", to: queue)
        queue.remove(queue.all(of: .goal))
        #expect(try Data(contentsOf: file) == Data("HFLOG001".utf8))
    }

    @Test func `A file that was cut off while it was new has lost nothing`() throws {
        try Data("HFL".utf8).write(to: URL(fileURLWithPath: directory.path("queue.log")))
        let queue = try open()
        try add("one", to: queue)
        #expect(queue.losses == RecordLog.Losses())
        #expect(texts(try open()) == ["one"])
    }

    @Test func `Events of a kind that a later release has queued are counted, unless that one has sent them`() throws {
        var log = try RecordLog(path: directory.path("queue.log")) { _ in }
        for number in 1...3 { try log.append(.init(kind: 200, number: UInt64(number), payload: [1])) }
        try log.append(.init(kind: 0, number: 3, payload: [2, 0, 0, 0, 0, 0, 0, 0]))
        #expect(try open().losses == RecordLog.Losses(records: 2))
    }

    @Test func `An event that no empty queue has room for is too long, and not one too many`() throws {
        let queue = try open(bytes: 100_000)
        #expect(throws: DurableQueue.Refusal.tooLong(maximum: 100_000)) {
            try queue.append(.goal, [UInt8](repeating: 1, count: 100_001))
        }
        try queue.append(.goal, [UInt8](repeating: 1, count: 100_000))
        let large = try DurableQueue(path: directory.path("large"), maximumCount: 9, maximumBytes: 16 << 20)
        #expect(throws: DurableQueue.Refusal.tooLong(maximum: 2 << 20)) {
            try large.append(.goal, [UInt8](repeating: 1, count: 2 << 20 + 1))
        }
    }

    #if os(Linux)
        @Test func `A rewritten file that finds no room is removed`() throws {
            let new = directory.path("queue.log.new")
            try FileManager.default.createSymbolicLink(atPath: new, withDestinationPath: "/dev/full")
            let error = #expect(throws: HoldfastError.self) {
                try RecordLog.Replacement(of: directory.path("queue.log"), [])
            }
            #expect(error?.localizedDescription.contains(new) == true)
            #expect((try? FileManager.default.destinationOfSymbolicLink(atPath: new)) == nil)
        }
    #endif

    @Test func `The queue accepts events up to its limits in number and bytes`() throws {
        let queue = try open(count: 2)
        try add("one", to: queue)
        try add("two", to: queue)
        #expect(throws: DurableQueue.Refusal.self) { try add("three", to: queue) }
        queue.remove([queue.all(of: .goal)[0]])
        try add("three", to: queue)
        #expect(texts(queue) == ["two", "three"])

        let small = try DurableQueue(path: directory.path("small"), maximumCount: 100, maximumBytes: 10)
        try add("1234567890", to: small)
        #expect(throws: DurableQueue.Refusal.self) { try add("1", to: small) }
    }

    @Test func `The file stays bounded while one event stays and others come and go`() throws {
        let queue = try open(bytes: 100_000)
        try add("stays", .save, to: queue)
        let text = String(repeating: "x", count: 1_000)
        for _ in 0..<1_000 {
            try add(text, to: queue)
            queue.remove(queue.all(of: .goal))
        }
        queue.synchronize()
        #expect(try Data(contentsOf: URL(fileURLWithPath: directory.path("queue.log"))).count < 400_000)
        #expect(texts(try open(), .save) == ["stays"])
    }

    @Test func `A batch is bounded in events and bytes, but has one event at least`() throws {
        let queue = try open()
        for number in 0..<10 { try add("event \(number)", to: queue) }
        #expect(queue.first(of: .goal, atMost: 3, bytes: 1_000, at: .now).count == 3)
        #expect(queue.first(of: .goal, atMost: 10, bytes: 16, at: .now).count == 2)
        #expect(queue.first(of: .goal, atMost: 10, bytes: 1, at: .now).count == 1)
        #expect(queue.first(of: .save, atMost: 10, bytes: 1, at: .now).isEmpty)
    }
}

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
private struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}
