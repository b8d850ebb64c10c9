import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// Forwards logins of an edge's clients to the upstream, many in one request: logins that arrive during a request are
/// collected for the next one.
///
/// Each client's request is a ``Job`` in the ``Queue`` of its caller. No task of its own serves the queue. Instead the
/// tasks of the clients take turns. One task sends a request with all waiting logins, and splits the response into one
/// for each job. Then the task of the first client that has arrived meanwhile sends the next request.
///
/// If a request does not succeed as a whole, for example because a login is refused, its jobs are forwarded one by one.
/// Repeating a login changes nothing.
final class LoginForwarder: Sendable {
    typealias Forward = (UpstreamRequest) async throws(Problem) -> ForwardedResponse

    /// One client's request with one or more logins.
    private struct Job: Sendable {
        let request: UpstreamRequest
        let logins: [JSONValue]
        /// Whether the body is an array; the response is then one, too.
        let isArray: Bool
        /// Resumes the client's task.
        let resume: @Sendable (Turn) -> Void
    }

    /// The response to one job, or the error. The response is `nil` if the shared request has none for the job. The job
    /// must then be forwarded by itself.
    private typealias Outcome = Result<ForwardedResponse?, Problem>

    /// The next step of the task of a waiting client.
    private enum Turn: Sendable {
        /// The task must send these jobs, of which the first is its own.
        case send([Job])
        /// Another task has sent the job.
        case done(Outcome)
    }

    /// The waiting jobs of one caller.
    private struct Queue {
        var waiting: [Job] = []
        /// The number of requests that are being sent.
        var requestsInProgress = 0

        /// Removes and returns the first jobs, as many as fit into one request, but at least one if there are any.
        mutating func takeBatch() -> [Job] {
            var count = 0
            var logins = 0
            while count < waiting.count,
                count == 0 || logins + waiting[count].logins.count <= LoginForwarder.maximumLogins
            {
                logins += waiting[count].logins.count
                count += 1
            }
            defer { waiting.removeFirst(count) }
            return Array(waiting.prefix(count))
        }
    }

    /// The queues by caller; see ``caller(of:)``. A caller without requests has no queue.
    private let queues = Mutex<[String: Queue]>([:])
    /// The maximum number of concurrent requests of one caller.
    private static let maximumRequests = 2
    /// The maximum number of logins in a request.
    private static let maximumLogins = 250

    /// Whether a request reports logins (`POST /v1/logins`).
    static func isLogin(_ request: UpstreamRequest) -> Bool {
        request.method == "POST" && request.target == "/v1/logins"
    }

    /// Sends a client's logins, together with the waiting logins of other clients.
    ///
    /// - Parameter forward: forwards a request, and updates the copy by its changes.
    func send(_ request: UpstreamRequest, _ forward: Forward) async throws(Problem) -> ForwardedResponse {
        // A request whose logins this edge cannot read, or which has too many, is forwarded by itself.
        guard !request.fields.contains(where: { $0.name == "content-encoding" }),
            let body = try? JSONParser().parse(request.body), body.array?.count ?? 1 <= Self.maximumLogins
        else { return try await forward(request) }
        let caller = Self.caller(of: request)
        let turn: Turn = await settled { resume in
            let job = Job(request: request, logins: body.array ?? [body], isArray: body.array != nil, resume: resume)
            if let jobs = enqueue(job, of: caller) { resume(.send(jobs)) }
        }
        let outcome: Outcome
        switch turn {
        case .done(let sent): outcome = sent
        case .send(let jobs):
            let outcomes = await Self.sendInOneRequest(jobs, forward)
            let next = endRequest(of: caller)
            if let first = next.first { first.resume(.send(next)) }
            for (job, outcome) in zip(jobs, outcomes).dropFirst() { job.resume(.done(outcome)) }
            outcome = outcomes[0]
        }
        if let response = try outcome.get() { return response }
        return try await forward(request)
    }

    // MARK: Queues

    /// Returns the key of a request's caller: the header fields as one text. Only logins with the same token and the
    /// same other fields may share a request.
    private static func caller(of request: UpstreamRequest) -> String {
        request.fields.filter { $0.name != "X-Request-Id" }.map { "\($0.name): \($0.value)" }
            .joined(separator: "\n")
    }

    /// Adds a job to the queue of its caller.
    ///
    /// - Returns: the jobs to send now; `nil` if the job must wait for a request of the caller to end.
    private func enqueue(_ job: Job, of caller: String) -> [Job]? {
        queues.withLock { queues -> [Job]? in
            queues[caller, default: Queue()].waiting.append(job)
            guard queues[caller]?.requestsInProgress ?? 0 < Self.maximumRequests else { return nil }
            queues[caller]?.requestsInProgress += 1
            return queues[caller]?.takeBatch()
        }
    }

    /// Notes that a request of the caller has ended.
    ///
    /// - Returns: the jobs of the next request; empty if none wait.
    private func endRequest(of caller: String) -> [Job] {
        queues.withLock { queues -> [Job] in
            let next = queues[caller]?.takeBatch() ?? []
            guard next.isEmpty else { return next }
            queues[caller]?.requestsInProgress -= 1
            if queues[caller]?.requestsInProgress == 0 { queues[caller] = nil }
            return []
        }
    }

    // MARK: Requests

    /// Sends the logins of jobs in one request.
    ///
    /// - Returns: the outcome of each job.
    private static func sendInOneRequest(_ jobs: [Job], _ forward: Forward) async -> [Outcome] {
        var request = jobs[0].request
        if jobs.count > 1 { request.body = JSONValue.array(jobs.flatMap(\.logins)).encoded() }
        do throws(Problem) {
            let response = try await forward(request)
            // A single job gets the response unchanged. So does each of several jobs if the response is 5xx, because it
            // is then about the request as a whole.
            guard jobs.count > 1, response.status < 500 else { return jobs.map { _ in .success(response) } }
            return split(response, jobs).map { .success($0) }
        } catch {
            return jobs.map { _ in .failure(error) }
        }
    }

    /// Splits the response to several jobs.
    ///
    /// - Returns: the response to each job; `nil` unless all of its logins are stored.
    private static func split(_ response: ForwardedResponse, _ jobs: [Job]) -> [ForwardedResponse?] {
        let results = (try? JSONParser().parse(response.body))?.object?["results"]?.array
        guard response.status == 200, let results, results.count == jobs.reduce(0, { $0 + $1.logins.count }) else {
            return jobs.map { _ in nil }
        }
        let stored = ReportList.Status.stored.rawValue
        var rest = results[...]
        return jobs.map { job in
            let resultsOfJob = rest.prefix(job.logins.count)
            rest = rest.dropFirst(job.logins.count)
            guard resultsOfJob.allSatisfy({ $0.object?["status"]?.string == stored }) else { return nil }
            let items = job.logins.indices.map { index -> JSONValue in
                ["index": .integer(Int64(index)), "status": .string(stored)]
            }
            let body: JSONValue = job.isArray ? ["results": .array(items)] : ["status": .string(stored)]
            var part = response
            part.body = body.encoded()
            return part
        }
    }
}
