import Dispatch
import Glibc
import Testing

@testable import HTTPServer

/// An event loop that the test drives itself.
@Suite struct EventLoopTests {
    private let loop: EventLoop
    private let application = BatchRecorder()
    private let descriptors: (reading: Int32, writing: Int32)

    init() throws {
        loop = try EventLoop(index: 0)
        loop.adoptThread()
        var pair: [Int32] = [0, 0]
        try #require(pipe(&pair) == 0)
        descriptors = (pair[0], pair[1])
    }

    private func write() {
        var byte: UInt8 = 1
        _ = Glibc.write(descriptors.writing, &byte, 1)
    }

    private func read() {
        var byte: UInt8 = 0
        _ = Glibc.read(descriptors.reading, &byte, 1)
    }

    private func close() {
        _ = Glibc.close(descriptors.reading)
        _ = Glibc.close(descriptors.writing)
    }

    @Test func `Jobs and watched descriptors are served within a batch`() throws {
        defer { close() }
        let application = application
        let watch = try loop.watch(descriptor: descriptors.reading) {
            application.log.append(application.isInBatch ? "descriptor in batch" : "descriptor outside")
        }
        // Safe: the job runs on the test's thread.
        nonisolated(unsafe) let recorder = application
        loop.submit { recorder.log.append(recorder.isInBatch ? "job in batch" : "job outside") }
        write()
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log == ["job in batch", "descriptor in batch"])
        // As long as there is something to read.
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log.count == 3)
        read()
        try loop.runWork(waitingAtMost: 0, in: application)
        #expect(application.log.count == 3)
        watch.cancel()
    }

    @Test func `Writing is reported only while it is awaited`() throws {
        defer { close() }
        let application = application
        let watch = try loop.watch(descriptor: descriptors.writing) { application.log.append("writable") }
        try loop.runWork(waitingAtMost: 0, in: application)
        #expect(application.log.isEmpty)
        watch.awaitsWriting = true
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log == ["writable"])
        watch.awaitsWriting = false
        try loop.runWork(waitingAtMost: 0, in: application)
        #expect(application.log == ["writable"])
        watch.cancel()
    }

    @Test func `An event of a watch that was cancelled is dropped`() throws {
        defer { close() }
        let application = application
        var second: EventLoop.Watch?
        // Both are ready; whoever comes first cancels the other, whose descriptor number is used again at once.
        let first = try loop.watch(descriptor: descriptors.reading) {
            application.log.append("first")
            second?.cancel()
        }
        second = try loop.watch(descriptor: descriptors.reading) {
            application.log.append("second")
            first.cancel()
        }
        write()
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log.count == 1)
        first.cancel()
        second?.cancel()
        let third = try loop.watch(descriptor: descriptors.reading) { application.log.append("third") }
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log.count == 2 && application.log.last == "third")
        third.cancel()
    }

    @Test func `A task begins at once and continues in a batch of its loop`() throws {
        defer { close() }
        let application = application
        var waiting: UnsafeContinuation<Void, Never>?
        loop.start {
            application.log.append("begun")
            await withUnsafeContinuation { waiting = $0 }
            application.log.append(application.isInBatch ? "continued in batch" : "continued outside")
        }
        #expect(application.log == ["begun"])
        // Only now: a task that is resumed before it is suspended goes on without its loop.
        let continuation = try #require(waiting)
        DispatchQueue.global().async { continuation.resume() }
        while application.log.count < 2 { try loop.runWork(waitingAtMost: 1_000, in: application) }
        #expect(application.log == ["begun", "continued in batch"])
    }

    @Test func `A task that becomes ready within another waits until that is suspended`() throws {
        defer { close() }
        let application = application
        var waiting: UnsafeContinuation<Void, Never>?
        loop.start {
            await withUnsafeContinuation { waiting = $0 }
            application.log.append("first")
        }
        let first = try #require(waiting)
        loop.start {
            first.resume()
            application.log.append("second")
            await withUnsafeContinuation { waiting = $0 }
            application.log.append("second again")
        }
        #expect(application.log == ["second", "first"])
        // Nothing runs: it continues at once.
        waiting?.resume()
        #expect(application.log == ["second", "first", "second again"])
    }

    @Test func `The owner may close a watched descriptor`() throws {
        let application = application
        let watch = try loop.watch(descriptor: descriptors.reading) { application.log.append("ended") }
        close()
        try loop.runWork(waitingAtMost: 1_000, in: application)
        #expect(application.log == ["ended"])
        watch.cancel()
    }
}

private final class BatchRecorder: Application {
    let router = Router([])
    let logsRequests = false
    var isInBatch = false
    var log: [String] = []

    func beginBatch() {
        isInBatch = true
    }

    func endBatch() {
        isInBatch = false
    }

    func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response {
        Response(failure.status, text: failure.detail)
    }

    func requestCompleted(_ summary: RequestSummary) {}

    func report(_ event: ServerEvent) {}
}
