import HTTPServer
import HoldfastCore
import JSON
import Storage
import Synchronization

/// Forwards logins of an edge's clients to the upstream, many in one request: logins that arrive during a request are
/// collected for the next one.
///
/// The task of one client sends the waiting logins, then the task of one that has arrived meanwhile. If a batch does
/// not succeed as a whole, for example because a login is refused, its logins are forwarded one by one. Repeating a
/// login changes nothing.
final class LoginForwarder: Sendable {
    typealias Forward = (UpstreamRequest) async throws(Problem) -> ForwardedResponse

    private struct Job: Sendable {
        let request: UpstreamRequest
        let logins: [JSONValue]
        let isArray: Bool
        let report: @Sendable (Turn) -> Void
    }

    private enum Turn: Sendable {
        /// The client's task must send these jobs, of which the first is its own.
        case sends([Job])
        /// - Parameter response: `nil` if the logins must be forwarded separately.
        case ends(Result<ForwardedResponse?, Problem>)
    }

    /// The logins of one caller.
    private struct Line {
        var waiting: [Job] = []
        var requests = 0

        mutating func take() -> [Job] {
            var (count, logins) = (0, 0)
            while count < waiting.count, count == 0 || logins + waiting[count].logins.count <= LoginForwarder.batch {
                logins += waiting[count].logins.count
                count += 1
            }
            defer { waiting.removeFirst(count) }
            return Array(waiting.prefix(count))
        }
    }

    private let lines = Mutex<[String: Line]>([:])
    /// The maximum number of concurrent requests of one caller, and of logins in each.
    private static let (requests, batch) = (2, 250)

    static func isLogin(_ request: UpstreamRequest) -> Bool {
        request.method == "POST" && request.target == "/v1/logins"
    }

    /// - Parameter forward: forwards a request, and updates the copy by its changes.
    func send(_ request: UpstreamRequest, _ forward: Forward) async throws(Problem) -> ForwardedResponse {
        guard !request.fields.contains(where: { $0.name == "content-encoding" }),
            let body = try? JSONParser().parse(request.body), body.array?.count ?? 1 <= Self.batch
        else { return try await forward(request) }
        let key = request.fields.filter { $0.name != "X-Request-Id" }.map { "\($0.name): \($0.value)" }
            .joined(separator: "\n")
        let turn: Turn = await settled { report in
            let job = Job(
                request: request, logins: body.array ?? [body], isArray: body.array != nil, report: report)
            let jobs = lines.withLock { lines -> [Job]? in
                lines[key, default: Line()].waiting.append(job)
                guard lines[key]?.requests ?? 0 < Self.requests else { return nil }
                lines[key]?.requests += 1
                return lines[key]?.take()
            }
            if let jobs { report(.sends(jobs)) }
        }
        let result: Result<ForwardedResponse?, Problem>
        switch turn {
        case .ends(let ended): result = ended
        case .sends(let jobs):
            let results = await Self.send(jobs, forward)
            let next = lines.withLock { lines -> [Job] in
                let next = lines[key]?.take() ?? []
                guard next.isEmpty else { return next }
                lines[key]?.requests -= 1
                if lines[key]?.requests == 0 { lines[key] = nil }
                return []
            }
            if let first = next.first { first.report(.sends(next)) }
            for (job, result) in zip(jobs, results).dropFirst() { job.report(.ends(result)) }
            result = results[0]
        }
        if let response = try result.get() { return response }
        return try await forward(request)
    }

    /// - Returns: a result for each job.
    private static func send(_ jobs: [Job], _ forward: Forward) async -> [Result<ForwardedResponse?, Problem>] {
        var request = jobs[0].request
        if jobs.count > 1 { request.body = JSONValue.array(jobs.flatMap(\.logins)).encoded() }
        do throws(Problem) {
            let response = try await forward(request)
            guard jobs.count > 1, response.status < 500 else { return jobs.map { _ in .success(response) } }
            return split(response, jobs).map { .success($0) }
        } catch {
            return jobs.map { _ in .failure(error) }
        }
    }

    /// Returns the response to each job; `nil` unless all of its logins are stored.
    private static func split(_ response: ForwardedResponse, _ jobs: [Job]) -> [ForwardedResponse?] {
        let results = (try? JSONParser().parse(response.body))?.object?["results"]?.array
        guard response.status == 200, let results, results.count == jobs.reduce(0, { $0 + $1.logins.count }) else {
            return jobs.map { _ in nil }
        }
        var rest = results[...]
        return jobs.map { job in
            let own = rest.prefix(job.logins.count)
            rest = rest.dropFirst(job.logins.count)
            let stored = ReportList.Status.stored.rawValue
            guard own.allSatisfy({ $0.object?["status"]?.string == stored }) else { return nil }
            let items = own.indices.map { index -> JSONValue in
                ["index": .integer(Int64(index - own.startIndex)), "status": .string(stored)]
            }
            let body: JSONValue = job.isArray ? ["results": .array(items)] : ["status": .string(stored)]
            var part = response
            part.body = body.encoded()
            return part
        }
    }
}
