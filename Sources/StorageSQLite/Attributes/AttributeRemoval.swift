import Bucketing
import Dispatch
import Storage

/// Deletes the values of attributes that are gone from the schema, a few in each transaction, so that other changes
/// wait for none of it long. How far it has come is part of each transaction: it goes on after a restart, and in
/// whatever process. Readers do not depend on it.
final class AttributeRemoval: @unchecked Sendable {
    // Safe: all is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    private let reader: QueuedReader
    private let batch: Int
    private let timer: any DispatchSourceTimer
    private let chain = BatchChain()

    /// Rows that one transaction looks at for each that it changes.
    private static let reach = 4

    init(writer: Writer, reader: QueuedReader, configuration: SQLiteConfiguration) {
        self.writer = writer
        self.reader = reader
        batch = configuration.retentionBatch
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "attribute-removal", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(configuration.retentionInterval * 1_000))
        timer.schedule(deadline: .now(), repeating: interval, leeway: .milliseconds(100))
        timer.setEventHandler { [weak self] in self?.lookForWork() }
        timer.resume()
    }

    func stop() {
        timer.cancel()
    }

    /// Goes on with what another process, or this one before a restart, has left undone.
    private func lookForWork() {
        let hasWork = try? reader.read { connection throws(SQLiteError) in
            try connection.integer("SELECT EXISTS (SELECT 1 FROM attribute_removals)") == 1
        }
        if hasWork == true { sweep() }
    }

    /// Deletes what there is to delete.
    func sweep() {
        chain.start { [writer, batch] done in
            writer.submit { transaction in
                try Self.deleteSome(batch, in: transaction)
            } completion: { result in
                // A failure shows in readiness and metrics; the next sweep tries again.
                if case .success(true) = result { done(true) } else { done(false) }
            }
        }
    }

    /// - Returns: whether there is more to do.
    private static func deleteSome(_ batch: Int, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        guard let (number, after) = try next(on: transaction.connection) else { return false }
        let rows = try page(after: after, limit: batch * reach, on: transaction.connection)
        var changed = 0
        var reached: Identifier?
        for (userID, bytes) in rows where changed < batch {
            reached = userID
            // A damaged record is left for those who ask for it to be told.
            guard let record = AttributeRecord(checking: bytes), record[number] != nil else { continue }
            try AttributeRows.put(record.applying([number: .remove]) { _ in }, for: userID, in: transaction)
            changed += 1
        }
        try note(number, reached: reached, in: transaction)
        return true
    }

    private static func next(on connection: Connection) throws(SQLiteError) -> (number: UInt32, after: Identifier)? {
        var found: (UInt32, Identifier)?
        try connection.statement("SELECT number, after_user_id FROM attribute_removals LIMIT 1").run(row: { row in
            found = (UInt32(clamping: row.integer(0)), Identifier(row.text(1)))
        })
        return found
    }

    private static func page(
        after: Identifier, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [(userID: Identifier, record: [UInt8])] {
        var rows: [(userID: Identifier, record: [UInt8])] = []
        try connection.statement(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1 ORDER BY user_id LIMIT ?2"
        ).run {
            $0.bind(after.string, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            rows.append((Identifier($0.text(0)), $0.bytes(1)))
        }
        return rows
    }

    /// - Parameter reached: the user whom the deletion has come to; `nil` when it is complete.
    private static func note(
        _ number: UInt32, reached: Identifier?, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        if let reached {
            try transaction.connection.statement(
                "UPDATE attribute_removals SET after_user_id = ?2 WHERE number = ?1"
            ).run {
                $0.bind(Int64(number), at: 1)
                $0.bind(reached.string, at: 2)
            }
        } else {
            try transaction.connection.statement("DELETE FROM attribute_removals WHERE number = ?1").run {
                $0.bind(Int64(number), at: 1)
            }
        }
        transaction.changed()
    }
}
