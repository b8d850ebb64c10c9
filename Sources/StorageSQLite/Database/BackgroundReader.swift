import Bucketing
import Dispatch
import Storage
import Synchronization

/// Reads on its own queue, one request at a time, so that event loops need not wait.
final class BackgroundReader: @unchecked Sendable {
    // Safe: mutable state is accessed on the queue only.
    private let file: DatabaseFile
    private let lockTimeout: Double
    private let queue: DispatchQueue
    private var connection: Connection?
    private var isClosed = false

    /// - Parameter label: the name of the queue.
    init(file: DatabaseFile, lockTimeout: Double, label: String, qos: DispatchQoS = .userInitiated) {
        queue = DispatchQueue(label: label, qos: qos)
        self.file = file
        self.lockTimeout = lockTimeout
    }

    func read<Value>(_ body: (Connection) throws(SQLiteError) -> Value) throws(StorageError) -> Value {
        try queue.sync { result(of: body) }.get()
    }

    /// - Parameter completion: called on the reader's queue.
    func read<Value>(
        _ body: @escaping @Sendable (Connection) throws(SQLiteError) -> Value,
        _ completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        queue.async { [self] in completion(result(of: body)) }
    }

    private func result<Value>(of body: (Connection) throws(SQLiteError) -> Value) -> Result<Value, StorageError> {
        guard !isClosed else { return .failure(.closed) }
        do throws(SQLiteError) {
            return .success(try body(try openConnection()))
        } catch {
            if error.asksForReopening { connection = nil }
            return .failure(error.asStorageError)
        }
    }

    private func openConnection() throws(SQLiteError) -> Connection {
        if let connection {
            try file.expectNoOtherLog()
            return connection
        }
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

/// Scans the attributes of all users in the background, in steps of a few milliseconds. Each step is a separate read,
/// so that concurrent scans alternate and none blocks checkpoints.
final class SegmentReader: Sendable {
    private let reader: BackgroundReader
    private let scans = Atomic<Int>(0)

    typealias Completion = @Sendable (Result<SegmentPage, StorageError>) -> Void

    /// The number of rows in one step.
    private static let stepRows = 4_096
    /// The maximum number of concurrent scans; more are refused.
    private static let limit = 64

    init(file: DatabaseFile, lockTimeout: Double) {
        reader = BackgroundReader(file: file, lockTimeout: lockTimeout, label: "segments", qos: .utility)
    }

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, completion: @escaping Completion) {
        guard scans.add(1, ordering: .relaxed).newValue <= Self.limit else {
            scans.subtract(1, ordering: .relaxed)
            return completion(.failure(.overloaded))
        }
        var page = SegmentPage()
        if case .users(let after) = scope { page.last = after }
        resume(matcher, scope, page) { [self] result in
            scans.subtract(1, ordering: .relaxed)
            completion(result)
        }
    }

    private func resume(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ page: SegmentPage, completion: @escaping Completion
    ) {
        reader.read { connection throws(SQLiteError) in
            try Self.step(matcher, scope, page, on: connection)
        } _: { [self] result in
            if case .success(let next) = result, next.last != nil, next.userIDs.isEmpty {
                resume(matcher, scope, next, completion: completion)
            } else {
                completion(result)
            }
        }
    }

    private static func step(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ former: SegmentPage, on connection: Connection
    ) throws(SQLiteError) -> SegmentPage {
        var page = former
        page.last = nil
        var rows = 0
        let isListing = if case .users = scope { true } else { false }
        try connection.statement(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1 ORDER BY user_id LIMIT ?2"
        ).run {
            // User ids are not empty, so that all follow the empty text.
            $0.bind(former.last?.string ?? "", at: 1)
            $0.bind(Int64(stepRows), at: 2)
        } row: { row in
            rows += 1
            if rows == stepRows { page.last = Identifier(row.text(0)) }
            guard row.withBytes(1, matcher.matches) else { return }
            page.matches += 1
            if isListing { page.userIDs.append(Identifier(row.text(0))) }
        }
        page.examined += rows
        return page
    }

    func close() {
        reader.close()
    }
}
