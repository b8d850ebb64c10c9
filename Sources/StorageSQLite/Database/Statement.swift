import CSQLite
import Glibc
import Storage

/// A prepared statement of a connection, and the current row while it runs. After each run the statement is reset and
/// its bindings are cleared.
final class Statement: Row {
    private let handle: OpaquePointer
    private let connection: OpaquePointer

    fileprivate init(handle: OpaquePointer, connection: OpaquePointer) {
        self.handle = handle
        self.connection = connection
    }

    deinit {
        sqlite3_finalize(handle)
    }

    /// Prepares a statement on a connection of the C library.
    static func prepare(_ sql: String, on connection: OpaquePointer) throws(SQLiteError) -> Statement {
        var handle: OpaquePointer?
        let code = sqlite3_prepare_v3(connection, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &handle, nil)
        guard code == SQLITE_OK, let handle else { throw SQLiteError(connection, code) }
        return Statement(handle: handle, connection: connection)
    }

    /// The text that was prepared.
    var sql: String { sqlite3_sql(handle).map { String(cString: $0) } ?? "" }

    /// Runs the statement to completion.
    ///
    /// - Parameters:
    ///   - bind: binds the parameters.
    ///   - row: called for each row. Reads the columns of the current row from the statement itself.
    func run(
        _ bind: (Statement) -> Void = { _ in }, row: (Statement) throws(SQLiteError) -> Void = { _ in }
    ) throws(SQLiteError) {
        bind(self)
        defer {
            sqlite3_reset(handle)
            sqlite3_clear_bindings(handle)
        }
        while true {
            switch sqlite3_step(handle) {
            case SQLITE_ROW: try row(self)
            case SQLITE_DONE: return
            case let code: throw SQLiteError(connection, code)
            }
        }
    }

    /// Runs a statement that finds at most one row, and returns the decoded row; `nil` if there is none.
    func first<Value>(
        _ bind: (Statement) -> Void = { _ in }, row: (Statement) -> Value?
    ) throws(SQLiteError) -> Value? {
        var value: Value?
        try run(bind) { value = row($0) }
        return value
    }

    /// Runs an INSERT, UPDATE or DELETE and returns the number of affected rows. The count costs nothing, whereas
    /// SQLite fills a temporary table for RETURNING.
    func change(_ bind: (Statement) -> Void) throws(SQLiteError) -> Int {
        try run(bind)
        return Int(sqlite3_changes64(connection))
    }

    // MARK: Parameters, counted from 1

    /// Binds the UTF-8 bytes of a text.
    func bind(_ text: String, at index: Int32) {
        var text = text
        text.withUTF8 { bytes in
            bytes.withMemoryRebound(to: CChar.self) {
                _ = sqlite3_bind_text(handle, index, $0.baseAddress, Int32($0.count), Self.copied)
            }
        }
    }

    /// Binds the UTF-8 bytes of a text.
    func bind(text bytes: [UInt8], at index: Int32) {
        bytes.withUnsafeBytes { bytes in
            // An empty array may have no address, which would mean NULL.
            let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
            if let start {
                _ = sqlite3_bind_text(handle, index, start, Int32(bytes.count), Self.copied)
            } else {
                bind("", at: index)
            }
        }
    }

    /// Binds all parameters, in order.
    func bind(_ values: [SQLValue]) {
        for (index, value) in values.enumerated() {
            let place = Int32(index + 1)
            switch value {
            case .integer(let number): bind(number, at: place)
            case .double(let number): bind(number, at: place)
            case .text(let text): bind(text, at: place)
            case .bytes(let bytes): if let bytes { bind(bytes, at: place) } else { bind(String?.none, at: place) }
            case .integers, .doubles, .texts, .blobs: assertionFailure("SQLite has no arrays")
            }
        }
    }

    func bind(_ text: String?, at index: Int32) {
        if let text { bind(text, at: index) } else { sqlite3_bind_null(handle, index) }
    }

    func bind(_ bytes: [UInt8], at index: Int32) {
        bytes.withUnsafeBytes { _ = sqlite3_bind_blob(handle, index, $0.baseAddress, Int32($0.count), Self.copied) }
    }

    func bind(_ number: Int64, at index: Int32) {
        sqlite3_bind_int64(handle, index, number)
    }

    func bind(_ number: Int64?, at index: Int32) {
        if let number { bind(number, at: index) } else { sqlite3_bind_null(handle, index) }
    }

    func bind(_ number: Double, at index: Int32) {
        sqlite3_bind_double(handle, index, number)
    }

    /// `SQLITE_TRANSIENT`, which makes SQLite copy the value; a macro that Swift does not import.
    private static let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)

    // MARK: Columns, counted from 0

    func integer(_ column: Int32) -> Int64 {
        sqlite3_column_int64(handle, column)
    }

    /// Returns an integer clamped to ±2^53, so that sums do not overflow even if the file is damaged.
    func bounded(_ column: Int32) -> Int64 {
        min(max(integer(column), -(1 << 53)), 1 << 53)
    }

    func double(_ column: Int32) -> Double {
        sqlite3_column_double(handle, column)
    }

    func isNull(_ column: Int32) -> Bool {
        sqlite3_column_type(handle, column) == SQLITE_NULL
    }

    func text(_ column: Int32) -> String {
        guard let bytes = sqlite3_column_text(handle, column) else { return "" }
        let count = Int(sqlite3_column_bytes(handle, column))
        return String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
    }

    /// Lends the bytes of a column, without copying them, for the duration of the call.
    func withBytes<Value>(_ column: Int32, _ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        let start = sqlite3_column_blob(handle, column)
        return body(UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column))))
    }

    func bytes(_ column: Int32) -> [UInt8] {
        guard let bytes = sqlite3_column_blob(handle, column) else { return [] }
        return Array(UnsafeRawBufferPointer(start: bytes, count: Int(sqlite3_column_bytes(handle, column))))
    }
}

@available(*, unavailable) extension Statement: Sendable {}
