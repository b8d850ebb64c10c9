import Bucketing
import Dispatch
import Storage
import Synchronization

/// Looks through the attributes of all users, on a connection and a queue of its own. A look goes in steps of a few
/// milliseconds, each a read of its own: looks at the same time take turns, and none keeps the write-ahead log from
/// being copied.
final class SegmentReader: @unchecked Sendable {
    // Safe: the connection is used on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    private let queue = DispatchQueue(label: "segments", qos: .utility)
    private let underWay = Atomic<Int>(0)
    private var connection: Connection?
    private var isClosed = false

    typealias Completion = @Sendable (Result<SegmentPage, StorageError>) -> Void

    /// Rows of one step.
    private static let step = 4_096
    /// Looks at the same time; beyond it they are refused.
    private static let limit = 64

    init(file: DatabaseFile, lockTimeout: Double) {
        self.file = file
        self.lockTimeout = lockTimeout
    }

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, completion: @escaping Completion) {
        guard underWay.add(1, ordering: .relaxed).newValue <= Self.limit else {
            underWay.subtract(1, ordering: .relaxed)
            return completion(.failure(.overloaded))
        }
        var page = SegmentPage()
        if case .users(let after) = scope { page.last = after }
        goOn(matcher, scope, page) { [self] result in
            underWay.subtract(1, ordering: .relaxed)
            completion(result)
        }
    }

    private func goOn(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ page: SegmentPage, completion: @escaping Completion
    ) {
        queue.async { [self] in
            guard !isClosed else { return completion(.failure(.closed)) }
            do throws(SQLiteError) {
                let next = try step(matcher, scope, page, on: try openConnection())
                let isDone = next.last == nil || !next.userIDs.isEmpty
                isDone ? completion(.success(next)) : goOn(matcher, scope, next, completion: completion)
            } catch {
                if error.asksForReopening { connection = nil }
                completion(.failure(error.asStorageError))
            }
        }
    }

    private func step(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ former: SegmentPage, on connection: Connection
    ) throws(SQLiteError) -> SegmentPage {
        var page = former
        page.last = nil
        var rows = 0
        let isListing = if case .users = scope { true } else { false }
        try connection.statement(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1 ORDER BY user_id LIMIT ?2"
        ).run {
            // No user id is empty, so that all come after the empty text.
            $0.bind(former.last?.string ?? "", at: 1)
            $0.bind(Int64(Self.step), at: 2)
        } row: { row in
            rows += 1
            if rows == Self.step { page.last = Identifier(row.text(0)) }
            guard row.withBytes(1, matcher.matches) else { return }
            page.matches += 1
            if isListing { page.userIDs.append(Identifier(row.text(0))) }
        }
        page.examined += rows
        return page
    }

    private func openConnection() throws(SQLiteError) -> Connection {
        if let connection { return connection }
        let fresh = try file.reader(lockTimeout: lockTimeout)
        connection = fresh
        return fresh
    }

    func close() {
        queue.sync {
            isClosed = true
            connection = nil
        }
    }
}
