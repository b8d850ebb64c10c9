import Storage

/// All that Holdfast keeps, in one SQLite file, which several processes of one host may share.
public final class SQLiteStore: Sendable {
    let configuration: SQLiteConfiguration
    let file: DatabaseFile
    let writer: Writer
    let projectReader: QueuedReader
    let attributeRemoval: AttributeRemoval
    let segmentReader: SegmentReader
    /// Exports, results and the audit log, which datafiles need not wait for.
    let eventReader: QueuedReader
    private let retention: Retention?

    /// Opens the database, making it or bringing it up to date where needed.
    ///
    /// - Throws: ``DatabaseError``; the file is then as it was.
    public init(_ configuration: SQLiteConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        let closedFile = DatabaseFile(path: configuration.path)
        try closedFile.prepare(lockTimeout: configuration.lockTimeout)
        do throws(SQLiteError) {
            writer = try Writer(file: closedFile, configuration: configuration)
        } catch {
            throw DatabaseError(configuration.path, error)
        }
        file = writer.file
        projectReader = QueuedReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "sqlite-project-reader")
        segmentReader = SegmentReader(file: file, lockTimeout: configuration.lockTimeout)
        attributeRemoval = AttributeRemoval(writer: writer, reader: projectReader, configuration: configuration)
        eventReader = QueuedReader(
            file: file, lockTimeout: configuration.lockTimeout, label: "sqlite-event-reader")
        retention = configuration.deletesOld ? Retention(writer: writer, configuration: configuration) : nil
    }

    public func close() {
        retention?.stop()
        attributeRemoval.stop()
        writer.notices.close()
        projectReader.close()
        segmentReader.close()
        eventReader.close()
        writer.close()
    }
}
