import CPostgreSQL
import Storage

/// The rows that a statement returned, in PostgreSQL's binary format. The bytes are not trusted: a value with an
/// unexpected format is read as zero or empty.
final class Rows: RandomAccessCollection, @unchecked Sendable {
    // Safe: libpq does not change a result.
    private let result: OpaquePointer
    let count: Int
    private let columns: Int32

    /// - Parameter result: a result of libpq, which this object owns from now on.
    init(_ result: OpaquePointer) {
        self.result = result
        count = Int(PQntuples(result))
        columns = PQnfields(result)
    }

    deinit {
        PQclear(result)
    }

    var startIndex: Int { 0 }
    var endIndex: Int { count }

    subscript(index: Int) -> ResultRow { ResultRow(result: self, index: index) }

    fileprivate func isNull(_ row: Int, _ column: Int32) -> Bool {
        guard row < count, column < columns else { return true }
        return PQgetisnull(result, Int32(row), column) == 1
    }

    fileprivate func withBytes<Value>(
        _ row: Int, _ column: Int32, _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Value {
        guard row < count, column < columns else { return body(.init(start: nil, count: 0)) }
        let length = Int(Swift.max(0, PQgetlength(result, Int32(row), column)))
        return body(UnsafeRawBufferPointer(start: PQgetvalue(result, Int32(row), column), count: length))
    }
}

/// A row of a result. A row that does not exist has NULL in all columns.
struct ResultRow: Row {
    fileprivate let result: Rows
    fileprivate let index: Int

    func isNull(_ column: Int32) -> Bool { result.isNull(index, column) }

    func withBytes<Value>(_ column: Int32, _ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        result.withBytes(index, column, body)
    }

    func bytes(_ column: Int32) -> [UInt8] { withBytes(column) { Array($0) } }

    func text(_ column: Int32) -> String { withBytes(column) { String(decoding: $0, as: UTF8.self) } }

    /// The value of a column of any integer type; 1 for `true` in a column of type `boolean`.
    func integer(_ column: Int32) -> Int64 {
        withBytes(column) { bytes in
            switch bytes.count {
            case 8: Int64(bigEndian: bytes.loadUnaligned(as: Int64.self))
            case 4: Int64(Int32(bigEndian: bytes.loadUnaligned(as: Int32.self)))
            case 2: Int64(Int16(bigEndian: bytes.loadUnaligned(as: Int16.self)))
            case 1: Int64(bytes[0])
            default: 0
            }
        }
    }

    func bounded(_ column: Int32) -> Int64 { Self.bounded(integer(column)) }

    func double(_ column: Int32) -> Double { withBytes(column, Self.double) }

    /// The elements of an array of `bigint`, bounded.
    func integers(_ column: Int32) -> [Int64] {
        elements(column) { $0.count == 8 ? Self.bounded(Int64(bigEndian: $0.loadUnaligned(as: Int64.self))) : 0 }
    }

    /// The elements of an array of `double precision`.
    func doubles(_ column: Int32) -> [Double] { elements(column, Self.double) }

    private func elements<Element>(
        _ column: Int32, _ decode: (UnsafeRawBufferPointer) -> Element
    ) -> [Element] {
        withBytes(column) { bytes in
            // The header has five words; see ``Parameter``. Each element follows its length.
            var found: [Element] = []
            var position = 20
            while position <= bytes.count - 4 {
                let length = Int(Int32(bigEndian: bytes.loadUnaligned(fromByteOffset: position, as: Int32.self)))
                position += 4
                guard length >= 0, length <= bytes.count - position else { break }
                found.append(decode(UnsafeRawBufferPointer(rebasing: bytes[position..<position + length])))
                position += length
            }
            return found
        }
    }

    private static func double(_ bytes: UnsafeRawBufferPointer) -> Double {
        guard bytes.count == 8 else { return 0 }
        let value = Double(bitPattern: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)))
        return value.isFinite ? value : 0
    }

    /// Limits a number to ±2^62.
    private static func bounded(_ number: Int64) -> Int64 {
        min(max(number, -(1 << 62)), 1 << 62)
    }
}
