import CPostgreSQL
import Storage

/// Statements with parameters, and `COPY`, on a connection in blocking mode. Used by copies and at the start of a
/// store.
extension Handle {
    /// Executes a query of `Storage`, which all stores have in common, and ignores its rows.
    func run(_ query: SQLQuery) throws(PostgreSQLError) {
        _ = try self.query(query.sql, query.parameters)
    }

    /// Executes a statement with parameters, and blocks until done. Not for connections in pipeline mode.
    func query(_ sql: String, _ values: [SQLValue] = []) throws(PostgreSQLError) -> Rows {
        let parameters = values.map { Parameter($0) }
        let types = parameters.map { Oid($0.type) }
        let lengths = parameters.map { Int32(clamping: $0.bytes?.count ?? 0) }
        // 1 is the binary format.
        let formats = [Int32](repeating: 1, count: parameters.count)
        // At least one byte each: a null pointer would mean NULL.
        let buffers = parameters.map { parameter in
            parameter.bytes.map { bytes in
                let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count + 1)
                for (index, byte) in bytes.enumerated() { buffer[index] = CChar(bitPattern: byte) }
                return buffer
            }
        }
        defer { for buffer in buffers { buffer?.deallocate() } }
        let contents = buffers.map { $0.map { UnsafePointer($0) } }
        let result = PQexecParams(pointer, sql, Int32(parameters.count), types, contents, lengths, formats, 1)
        return try Rows(checked(result))
    }

    /// Inserts rows with `COPY`.
    ///
    /// - Parameters:
    ///   - input: see ``CopyInput``.
    ///   - target: the table and its columns.
    func copy(_ input: [UInt8], into target: String) throws(PostgreSQLError) {
        let begun = PQexec(pointer, "COPY \(target) FROM STDIN (FORMAT binary)")
        guard PQresultStatus(begun) == PGRES_COPY_IN else { return PQclear(try checked(begun)) }
        PQclear(begun)
        let isSent = input.withUnsafeBytes { bytes in
            PQputCopyData(pointer, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(clamping: bytes.count))
        }
        _ = PQputCopyEnd(pointer, isSent == 1 ? nil : "the rows could not be sent")
        let end = PQgetResult(pointer)
        while let other = PQgetResult(pointer) { PQclear(other) }
        PQclear(try checked(end))
    }

    /// Makes a sequence continue after a number. A sequence cannot have the last number 0, so for 0 it gets 1 as its
    /// next number instead.
    ///
    /// - Parameter sequence: an SQL expression for the name of the sequence.
    func setSequence(_ sequence: String, to last: Int64) throws(PostgreSQLError) {
        _ = try query("SELECT setval(\(sequence), greatest($1, 1), $1 > 0)", [.integer(last)])
    }

    /// Returns a successful result.
    ///
    /// - Throws: the error that the result reports.
    private func checked(_ result: OpaquePointer?) throws(PostgreSQLError) -> OpaquePointer {
        guard let result else {
            throw PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
        }
        guard [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(PQresultStatus(result)) else {
            defer { PQclear(result) }
            throw PostgreSQLError(result)
        }
        return result
    }
}
