public import HTTPServer

/// Serves an application without sockets: its handlers run on the thread that asks for a response. Use one instance in
/// one test.
public final class InProcessServer {
    public let application: any Application
    private let loop: EventLoop
    private let limits: Limits

    /// No response, or no further piece of one, arrived in time.
    public struct TimedOut: Error {}

    public init(limits: Limits = Limits(), _ makeApplication: (EventLoop) throws -> any Application) throws {
        self.limits = limits
        loop = try EventLoop(index: 0)
        loop.adoptThread()
        application = try makeApplication(loop)
    }

    /// Handles a request and waits for its response.
    ///
    /// - Throws: ``TimedOut`` after so many seconds.
    public func response(to request: LocalRequest, within seconds: Double = 60) throws -> CollectedResponse {
        var response: CollectedResponse?
        let collector = begin(request) { response = $0 }
        do {
            return try wait(within: seconds) { response }
        } catch {
            collector.close()
            throw error
        }
    }

    /// Handles a request and waits for the head of its response, whose body may never end.
    ///
    /// - Throws: ``TimedOut`` after so many seconds.
    public func stream(_ request: LocalRequest, within seconds: Double = 60) throws -> InProcessStream {
        try InProcessStream(request, from: self, within: seconds)
    }

    /// Runs the jobs that are left, and stops the application.
    public func stop() {
        loop.adoptThread()
        loop.close()
        application.stop()
    }

    fileprivate func begin(
        _ request: LocalRequest, _ completion: @escaping (CollectedResponse) -> Void
    ) -> ResponseCollector {
        // A test may continue on another thread.
        loop.adoptThread()
        application.beginBatch()
        defer { application.endBatch() }
        return application.respond(to: request, on: loop, limits: limits, completion: completion)
    }

    /// Runs jobs until there is a value.
    fileprivate func wait<Value>(within seconds: Double, for value: () throws -> Value?) throws -> Value {
        loop.adoptThread()
        let deadline = ContinuousClock.now + .seconds(seconds)
        while true {
            if let value = try value() { return value }
            guard ContinuousClock.now < deadline else { throw TimedOut() }
            try loop.runWork(waitingAtMost: 100, in: application)
        }
    }
}

/// A response whose body is read while it is produced. Given up with the last reference, as by a client that closes its
/// connection.
public final class InProcessStream {
    /// The response; its body is what was produced with the head.
    public let head: CollectedResponse
    private let server: InProcessServer
    private let collector: ResponseCollector
    private let ending: Ending
    private var received = 0

    /// The whole response, once its body has ended.
    private final class Ending {
        var response: CollectedResponse?
    }

    /// The body ended in the middle.
    public struct CutOff: Error {}

    fileprivate init(_ request: LocalRequest, from server: InProcessServer, within seconds: Double) throws {
        let ending = Ending()
        let collector = server.begin(request) { ending.response = $0 }
        self.server = server
        self.ending = ending
        self.collector = collector
        head = try server.wait(within: seconds) { ending.response ?? collector.unfinishedResponse }
    }

    deinit {
        collector.close()
    }

    /// Waits for the next piece of the body. Returns `nil` at its end.
    ///
    /// - Throws: ``InProcessServer/TimedOut`` after so many seconds, ``CutOff`` if the body ended in the middle.
    public func next(within seconds: Double = 60) throws -> [UInt8]? {
        try server.wait(within: seconds) { () throws -> [UInt8]?? in
            let response = ending.response ?? collector.unfinishedResponse
            if let body = response?.body, body.count > received {
                defer { received = body.count }
                return .some(Array(body[received...]))
            }
            guard let end = ending.response else { return nil }
            guard end.isComplete else { throw CutOff() }
            return .some(nil)
        }
    }
}
