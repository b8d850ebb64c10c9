import Dispatch
import Foundation
import Testing

@testable import HoldfastClient

@Suite struct BackoffTests {
    @Test func `Each failure doubles the time, up to five minutes, and a success begins anew`() {
        var backoff = Backoff()
        let times = (0..<12).map { _ in backoff.failed(chance: 0) }
        #expect(times.prefix(4) == [.seconds(0.5), .seconds(1), .seconds(2), .seconds(4)])
        #expect(times.last == .seconds(150))
        backoff.succeeded()
        #expect(backoff.failed(chance: 0.5) == .seconds(0.75))
    }

    @Test func `What the server asks for is the least`() {
        var backoff = Backoff()
        #expect(backoff.failed(retryAfter: .seconds(30), chance: 0) == .seconds(30))
        #expect(backoff.failed(retryAfter: .milliseconds(1), chance: 0) == .seconds(1))
    }

    @Test(arguments: [
        ("5", Duration.seconds(5)), ("0", .zero), ("999999999", .seconds(86_400)), ("-1", nil), ("soon", nil),
        (nil, nil),
        ("Fri, 15 Jan 2027 08:01:30 GMT", .seconds(90)), ("Fri, 15 Jan 2027 07:00:00 GMT", .zero),
    ])
    func `Retry-After is seconds or a date`(_ value: String?, _ duration: Duration?) {
        #expect(RetryAfter.parse(value, now: Date(timeIntervalSince1970: 1_800_000_000)) == duration)
    }
}

@Suite struct ServerSentEventTests {
    private static let text =
        "event: datafile\ndata: {\"a\":1}\n\n: alive\n\ndata: x\r\ndata:y\r\n\r\nid: 7\n\nevent: late\rdata:  z\r\r"

    @Test(arguments: [1, 2, 3, 7, 1_000]) func `Events are the same however the bytes are cut`(_ size: Int) throws {
        var parser = ServerSentEventParser()
        var events: [ServerSentEvents.Event] = []
        let bytes = Array(Self.text.utf8)
        for start in stride(from: 0, to: bytes.count, by: size) {
            events += try parser.take(bytes[start..<min(start + size, bytes.count)])
        }
        #expect(
            events == [
                .init(name: "datafile", data: "{\"a\":1}"), .init(name: "message", data: "x\ny"),
                .init(name: "late", data: " z"),
            ])
    }

    @Test func `A line without end is refused`() throws {
        var parser = ServerSentEventParser()
        #expect(throws: HoldfastError.self) { try parser.take([UInt8](repeating: 65, count: 100_000)) }
    }

    @Test func `An event of many lines without end is refused, and many short events are not`() throws {
        let line = Array("data: \(String(repeating: "x", count: 1_000))\n".utf8)
        var parser = ServerSentEventParser()
        for _ in 0..<100 { #expect(try parser.take(line + [UInt8(ascii: "\n")]).count == 1) }
        for _ in 0..<100 { #expect(try parser.take(Array(": alive\n".utf8) + line.dropLast(900)).isEmpty) }
        #expect(throws: HoldfastError.self) { for _ in 0..<100 { _ = try parser.take(line) } }
    }
}

@Suite struct SystemClockTests {
    @Test func `A time-out may be as long as can be written`() async throws {
        for duration in [Duration.seconds(Int.max), .seconds(Int64.max)] {
            let sleeping = Task { try await SystemClock().sleep(for: duration) }
            await #expect(value(within: .milliseconds(1), SystemClock()) { try? await sleeping.value } == nil)
            sleeping.cancel()
            await #expect(throws: CancellationError.self) { try await sleeping.value }
        }
        try await SystemClock().sleep(for: .seconds(Int64.min))
    }
}

@Suite struct PollScheduleTests {
    /// The delays after failures, each of which comes when the former delay is over.
    private func delays(_ count: Int, interval: Int, _ schedule: inout PollSchedule, from start: Date = .distantPast)
        -> [Duration]
    {
        var now = start
        return (0..<count).map { _ in
            let delay = schedule.next(succeeded: false, interval: .seconds(interval), attemptedAt: now, now: now)
            now.addTimeInterval(delay.inSeconds)
            return delay
        }
    }

    @Test(arguments: [
        (600, [60, 60, 60, 60, 60, 300, 60]), (3_600, [60, 60, 60, 60, 60, 3_300, 60]),
        (90, [60, 60, 60, 60, 60, 60, 60]), (60, [60, 60, 60, 60, 60, 60, 60]),
    ])
    func `A failure is retried each minute five times, then when the interval is over, then each minute again`(
        interval: Int, expected: [Int]
    ) {
        var schedule = PollSchedule()
        #expect(delays(7, interval: interval, &schedule) == expected.map { .seconds($0) })
    }

    @Test func `A success is followed by the interval and five new retries`() {
        var schedule = PollSchedule()
        _ = delays(4, interval: 600, &schedule)
        let now = Date(timeIntervalSince1970: 0)
        #expect(schedule.next(succeeded: true, interval: .seconds(600), attemptedAt: now, now: now) == .seconds(600))
        #expect(
            delays(6, interval: 600, &schedule, from: now)
                == Array(repeating: .seconds(60), count: 5) + [.seconds(300)])
    }
}

@Suite struct BoundedCacheTests {
    @Test func `No more is kept than may be, and what is used stays`() {
        var cache = BoundedCache<Int>(capacity: 100)
        for number in 0..<10_000 {
            cache.set(Key("\(number)"), number)
            #expect(cache.value(Key("0")) == 0)
        }
        #expect(cache.all.count <= 100)
        #expect(cache.value(Key("9999")) == 9_999)
        #expect(cache.value(Key("5")) == nil)
    }

    @Test func `Two ways to compose a letter are two keys`() {
        var cache = BoundedCache<Int>(capacity: 10)
        cache.set(Key("\u{E9}"), 1)
        #expect(cache.value(Key("e\u{301}")) == nil)
    }
}

@Suite struct DiskCacheTests {
    @Test func `What is damaged reads as absent`() throws {
        let directory = try TemporaryDirectory()
        let cache = try DiskCache(directory: directory.url)
        cache.write("values", ["a": 1])
        #expect(cache.read("values", as: [String: Int].self) == ["a": 1])
        let file = directory.url.appendingPathComponent("values")
        var content = try Data(contentsOf: file)
        content[content.count - 2] ^= 1
        try content.write(to: file)
        #expect(cache.read("values", as: [String: Int].self) == nil)
        #expect(cache.read("nothing", as: [String: Int].self) == nil)
    }

    @Test func `Only the user may read a cache, and writes at once leave one whole file`() throws {
        let directory = try TemporaryDirectory()
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory.url.path)
        let cache = try DiskCache(directory: directory.url)
        DispatchQueue.concurrentPerform(iterations: 20) { number in
            cache.write("values", [String](repeating: "\(number)", count: 1_000))
        }
        let values = try #require(cache.read("values", as: [String].self))
        #expect(values.count == 1_000 && Set(values).count == 1)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.url.path) == ["values"])
        let attributes = try FileManager.default.attributesOfItem(atPath: directory.path("values"))
        #expect(attributes[.posixPermissions] as? Int == 0o600)
    }

    @Test func `What cannot be read or written is logged, and what is absent is not`() async throws {
        let directory = try TemporaryDirectory()
        let (messages, continuation) = AsyncStream.makeStream(of: String.self)
        let cache = try DiskCache(directory: directory.url) { level, message, metadata in
            continuation.yield("\(level) \(message): \(metadata["file"] ?? "")")
        }
        #expect(cache.read("values", as: [String: Int].self) == nil)
        let file = directory.url.appendingPathComponent("values")
        try Data("damaged".utf8).write(to: file)
        #expect(cache.read("values", as: [String: Int].self) == nil)
        var log = messages.makeAsyncIterator()
        #expect(await log.next() == "warning a cache is damaged or unreadable: \(file.path)")
        try FileManager.default.removeItem(at: directory.url)
        cache.write("values", ["a": 1])
        #expect(await log.next() == "warning a cache cannot be written: \(file.path)")
    }

    @Test func `The checksum is CRC-32`() {
        #expect(Checksum.crc32(Array("123456789".utf8)) == 0xCBF4_3926)
    }
}

@Suite struct HoldfastConfigurationTests {
    @Test func `The defaults are those that are written down`() throws {
        let configuration = HoldfastConfiguration(endpoint: Client.endpoint)
        #expect(configuration.pollingInterval == .seconds(600))
        #expect(configuration.backgroundPollingInterval == .seconds(3_600))
        #expect(configuration.flushInterval == .seconds(60))
        #expect(configuration.batchSize == 50)
        #expect(configuration.queueSize == 10_000)
        #expect(configuration.requestTimeout == .seconds(30))
        #expect(configuration.listensToChanges && configuration.tags.isEmpty)
        try configuration.check()
    }

    @Test func `Apps, servers and projects have directories of their own by default`() throws {
        let directory = HoldfastConfiguration(endpoint: Client.endpoint).directory
        #expect(directory == HoldfastConfiguration(endpoint: Client.endpoint, token: "other").directory)
        #expect(directory != HoldfastConfiguration(endpoint: Client.endpoint, sdkKey: "shop").directory)
        #expect(directory != HoldfastConfiguration(endpoint: Client.endpoint.appending(path: "x")).directory)
        let app = Bundle.main.bundleIdentifier ?? ProcessInfo.processInfo.processName
        #expect(directory.pathComponents.suffix(3).prefix(2) == ["holdfast", app])
    }

    struct Wrong: Sendable {
        let name: String
        let change: @Sendable (inout HoldfastConfiguration) -> Void

        init(_ name: String, _ change: @escaping @Sendable (inout HoldfastConfiguration) -> Void) {
            self.name = name
            self.change = change
        }
    }

    @Test(arguments: [
        Wrong("pollingInterval") { $0.pollingInterval = .seconds(59) },
        Wrong("backgroundPollingInterval") { $0.backgroundPollingInterval = .seconds(1_199) },
        Wrong("flushInterval") { $0.flushInterval = .zero }, Wrong("batchSize") { $0.batchSize = 0 },
        Wrong("queueSize") { $0.queueSize = 0 }, Wrong("queueBytes") { $0.queueBytes = 1 },
        Wrong("token") { $0.token = "a b" }, Wrong("endpoint") { $0.endpoint = URL(fileURLWithPath: "/tmp") },
        Wrong("cachedProfiles") { $0.cachedProfiles = -1 }, Wrong("cachedUsers") { $0.cachedUsers = 0 },
        Wrong("directory") {
            $0.directory = URL(fileURLWithPath: "/private/var/mobile/Containers/Shared/AppGroup/1/Library")
        },
    ])
    func `A value that cannot be used is refused by its name`(_ wrong: Wrong) throws {
        let error = try #require(throws: HoldfastError.self) { _ = try Client { wrong.change(&$0) } }
        guard case .invalidConfiguration(let reason) = error else {
            Issue.record("\(error)")
            return
        }
        #expect(reason.hasPrefix(wrong.name + " "))
    }
}
