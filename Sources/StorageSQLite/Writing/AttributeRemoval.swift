import Bucketing
import Dispatch
import Storage

/// Deletes users' values of attributes that were deleted from the schema.
///
/// The table `attribute_removals` lists these attributes, each with the last user whose value was deleted. Each of many
/// small transactions deletes the values of the next users and records the progress, so that any process can continue
/// the deletion after a restart. Readers do not depend on the deletion.
final class AttributeRemoval: @unchecked Sendable {
    // Safe: all state is constant, and a timer source may be cancelled from any thread.
    private let writer: Writer
    private let reader: BackgroundReader
    /// The maximum number of records that one transaction changes.
    private let batch: Int
    private let timer: any DispatchSourceTimer
    private let chain = BatchChain()

    /// A transaction may change up to ``batch`` rows, and may read this many times as many. It reads more than it
    /// changes, because most users may lack the attribute.
    private static let scanFactor = 4

    init(writer: Writer, reader: BackgroundReader, configuration: SQLiteConfiguration) {
        self.writer = writer
        self.reader = reader
        batch = configuration.settings.retentionBatch
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "attribute-removal", qos: .utility))
        let interval = DispatchTimeInterval.milliseconds(Int(configuration.settings.retentionInterval * 1_000))
        timer.schedule(deadline: .now(), repeating: interval, leeway: .milliseconds(100))
        let isReadOnly = configuration.settings.isReadOnly
        timer.setEventHandler { [weak self] in if !isReadOnly { self?.resume() } }
        timer.resume()
    }

    func stop() {
        timer.cancel()
    }

    /// Continues deletions that another process, or this process before a restart, has not finished.
    private func resume() {
        let hasWork = try? reader.read { connection throws(SQLiteError) in
            try connection.integer("SELECT EXISTS (SELECT 1 FROM attribute_removals)") == 1
        }
        if hasWork == true { sweep() }
    }

    /// Starts to delete the values of all listed attributes, in the background. Does nothing if that is in progress.
    func sweep() {
        chain.start { await self.sweepOnce() }
    }

    /// - Returns: whether there is more to do.
    private func sweepOnce() async -> Bool {
        // Readiness and metrics report a failure; the next sweep tries again.
        (try? await writer.perform { [batch] in try Self.deleteSome(batch, in: $0) }) ?? false
    }

    /// Deletes the values of the next users.
    ///
    /// - Returns: whether there is more to do.
    private static func deleteSome(_ batch: Int, in transaction: WriteTransaction) throws(SQLiteError) -> Bool {
        guard let removal = try next(on: transaction.connection) else { return false }
        let number = removal.number
        let rows = try transaction.connection.all(
            "SELECT user_id, record FROM user_attributes WHERE user_id > ?1 ORDER BY user_id LIMIT ?2",
            .text(removal.after), .integer(batch * scanFactor)
        ) { (userID: $0.identifier(0), record: $0.bytes(1)) }
        var changed = 0
        var reached: Identifier?
        for (userID, bytes) in rows where changed < batch {
            reached = userID
            // A damaged record stays, so that reading it reports the damage.
            guard let record = AttributeRecord(checking: bytes), record[number] != nil else { continue }
            try AttributeRows.put(record.applying([number: .remove]) { _ in }, for: userID, in: transaction)
            changed += 1
        }
        try recordProgress(of: number, reached: reached, in: transaction)
        return true
    }

    /// Returns the number of the next attribute, and the last user whose value was deleted.
    private static func next(on connection: Connection) throws(SQLiteError) -> (number: UInt32, after: Identifier)? {
        try connection.all("SELECT number, after_user_id FROM attribute_removals LIMIT 1") { row in
            (UInt32(clamping: row.integer(0)), row.identifier(1))
        }.first
    }

    /// Records the progress, or the end of a removal.
    ///
    /// - Parameter reached: the last user that was processed; `nil` if no users are left, so that the removal ends.
    private static func recordProgress(
        of number: UInt32, reached: Identifier?, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        let removal = SQLValue.integer(Int(number))
        if let reached {
            try transaction.connection.change(
                "UPDATE attribute_removals SET after_user_id = ?2 WHERE number = ?1", removal, .text(reached))
        } else {
            try transaction.connection.change("DELETE FROM attribute_removals WHERE number = ?1", removal)
        }
        transaction.changed()
    }
}
