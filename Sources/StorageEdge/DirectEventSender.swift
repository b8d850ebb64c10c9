import Bucketing
import Storage
import StorageSQLite

/// Sends events directly to the upstream while the outbox is full or cannot be written.
///
/// All waiting events go in one request. Events count as stored once the upstream has confirmed them.
final class DirectEventSender: Sendable {
    /// The events of one call, with one report.
    private struct Job: Sendable {
        let entries: [OutboxEntry.New]
        let report: @Sendable (Result<Void, StorageError>) -> Void
    }

    private let lanes: Lanes<Job>
    /// The maximum number of concurrent requests.
    private static let requests = 2
    /// The maximum number of jobs in a request, and about the maximum of their size in bytes.
    private static let batch = (jobs: 256, bytes: 512 << 10)

    init(_ upstream: Upstream, _ sender: OutboxSender) {
        // A job takes more than its contents in the request: the numbers of entries and the ids of users. 64 bytes are
        // an estimate.
        lanes = Lanes(
            "edge-passage", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { job in job.entries.reduce(64) { $0 + $1.content.count } }
        ) { jobs, connection in
            Self.send(jobs, connection, upstream, sender)
        }
    }

    /// Sends entries with the next request.
    ///
    /// - Parameter report: called on any thread, with success once the upstream has stored or refused all entries.
    func send(_ entries: [OutboxEntry.New], _ report: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        // Jobs with the same key stay in order. Nearly always all events of a call are of one user.
        let key = entries.first?.userID?.hashValue ?? 0
        if !lanes.add(Job(entries: entries, report: report), key: key) { report(.failure(.overloaded)) }
    }

    /// Blocks until all added events are sent or have failed.
    func wait() { lanes.wait() }

    /// Sends the entries of all jobs in one request, numbered from 1. A job succeeds if the upstream has stored or
    /// refused each of its entries.
    private static func send(
        _ jobs: [Job], _ connection: UpstreamConnection, _ upstream: Upstream, _ sender: OutboxSender
    ) {
        var entries: [EventOutbox.Entry] = []
        for entry in jobs.flatMap(\.entries) {
            entries.append(.init(number: Int64(entries.count + 1), userID: entry.userID, content: entry.content))
        }
        let result = Result { () throws(UpstreamError) in try sender.send(entries, connection) }
        if case .failure(let error) = result { upstream.didFail(error) }
        let done = Set((try? result.get()) ?? [])
        var next: Int64 = 1
        for job in jobs {
            let numbers = next..<next + Int64(job.entries.count)
            next = numbers.upperBound
            job.report(numbers.allSatisfy(done.contains) ? .success(()) : .failure(failure(of: result)))
        }
    }

    private static func failure(of result: Result<[Int64], UpstreamError>) -> StorageError {
        if case .failure(let error) = result, error.isUnknown { return .undecided }
        return .unavailable(reason: "neither the outbox nor the upstream takes events at present")
    }
}
