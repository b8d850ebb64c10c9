import Bucketing
import Dispatch
import Storage
import Synchronization

/// Looks through the attributes of all users, on a connection and a queue of its own. A look goes in steps of a few
/// milliseconds, each a read of its own: looks at the same time take turns, and none keeps the write-ahead log from
/// being copied.
final class SegmentReader: Sendable {
    private let reader: QueuedReader
    private let underWay = Atomic<Int>(0)

    typealias Completion = @Sendable (Result<SegmentPage, StorageError>) -> Void

    /// Rows of one step.
    private static let stepRows = 4_096
    /// Looks at the same time; beyond it they are refused.
    private static let limit = 64

    init(file: DatabaseFile, lockTimeout: Double) {
        reader = QueuedReader(file: file, lockTimeout: lockTimeout, label: "segments", qos: .utility)
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
        reader.read { connection throws(SQLiteError) in
            try Self.step(matcher, scope, page, on: connection)
        } _: { [self] result in
            if case .success(let next) = result, next.last != nil, next.userIDs.isEmpty {
                goOn(matcher, scope, next, completion: completion)
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
            // No user id is empty, so that all come after the empty text.
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
