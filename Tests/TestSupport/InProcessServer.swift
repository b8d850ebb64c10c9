public import HTTPServer

/// Serves an application without sockets: its handlers run on the thread that asks for a response. Use one instance in
/// one test.
public final class InProcessServer {
    public let application: any Application
    private let loop: EventLoop

    /// No response arrived in time.
    public struct TimedOut: Error {}

    public init(_ makeApplication: (EventLoop) throws -> any Application) throws {
        loop = try EventLoop(index: 0)
        loop.adoptThread()
        application = try makeApplication(loop)
    }

    /// Handles a request and waits for its response.
    ///
    /// - Throws: ``TimedOut`` after so many seconds.
    public func response(to request: LocalRequest, within seconds: Double = 10) throws -> CollectedResponse {
        // A test may continue on another thread.
        loop.adoptThread()
        var response: CollectedResponse?
        application.beginBatch()
        let collector = application.respond(to: request, on: loop) { response = $0 }
        application.endBatch()
        let deadline = ContinuousClock.now + .seconds(seconds)
        while true {
            if let response { return response }
            guard ContinuousClock.now < deadline else {
                collector.close()
                throw TimedOut()
            }
            try loop.runJobs(waitingAtMost: 100)
        }
    }

    /// Runs the jobs that are left, and stops the application.
    public func stop() {
        loop.close()
        application.stop()
    }
}
