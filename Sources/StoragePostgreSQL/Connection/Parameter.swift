import Storage

/// A parameter of a statement in PostgreSQL's binary format, which the `*recv` functions of PostgreSQL's types read.
/// Integers are in network byte order, and texts are in UTF-8.
///
/// ```
/// array    dimensions 4 | has NULL 4 | element type 4 | count 4 | first index 4 | elements    (sizes in bytes)
/// element  length 4 | bytes                                        NULL: length -1, no bytes
/// ```
struct Parameter {
    /// The object id of the parameter's type.
    let type: UInt32
    /// The value in binary format; `nil` for NULL.
    let bytes: [UInt8]?

    // Object ids of types and of their arrays, from PostgreSQL's `pg_type.dat`.

    private static let bytea: UInt32 = 17
    private static let int8: UInt32 = 20
    private static let text: UInt32 = 25
    private static let float8: UInt32 = 701
    private static let byteaArray: UInt32 = 1001
    private static let textArray: UInt32 = 1009
    private static let int8Array: UInt32 = 1016
    private static let float8Array: UInt32 = 1022

    init(_ value: SQLValue) {
        switch value {
        case .integer(let number): self.init(Self.int8, number.map { Self.bigEndian(UInt64(bitPattern: $0)) })
        case .double(let number): self.init(Self.float8, Self.bigEndian(number.bitPattern))
        case .text(let text): self.init(Self.text, text.map { Array($0.utf8) })
        case .bytes(let bytes): self.init(Self.bytea, bytes)
        case .integers(let values): self = .integers(values)
        case .doubles(let values): self = .doubles(values)
        case .texts(let values): self = .texts(values)
        case .blobs(let values): self = .blobs(values)
        }
    }

    private init(_ type: UInt32, _ bytes: [UInt8]?) {
        self.type = type
        self.bytes = bytes
    }

    private static func texts(_ values: [String?]) -> Parameter {
        array(of: text, as: textArray, values) { value, output in
            var value = value
            value.withUTF8 { bytes in
                append(UInt32(truncatingIfNeeded: bytes.count), to: &output)
                output.append(contentsOf: bytes)
            }
        }
    }

    private static func blobs(_ values: [[UInt8]?]) -> Parameter {
        array(of: bytea, as: byteaArray, values) { value, output in
            append(UInt32(truncatingIfNeeded: value.count), to: &output)
            output.append(contentsOf: value)
        }
    }

    private static func integers(_ values: [Int64?]) -> Parameter {
        array(of: int8, as: int8Array, values) { value, output in
            append(UInt32(8), to: &output)
            append(UInt64(bitPattern: value), to: &output)
        }
    }

    private static func doubles(_ values: [Double?]) -> Parameter {
        array(of: float8, as: float8Array, values) { value, output in
            append(UInt32(8), to: &output)
            append(value.bitPattern, to: &output)
        }
    }

    /// Encodes an array.
    ///
    /// - Parameter encode: appends the length of a value in bytes, and the value.
    @inline(__always)
    private static func array<Element>(
        of element: UInt32, as type: UInt32, _ values: [Element?], _ encode: (Element, inout [UInt8]) -> Void
    ) -> Parameter {
        var output: [UInt8] = []
        output.reserveCapacity(20 + 32 * values.count)
        let hasNull: UInt32 = values.contains { $0 == nil } ? 1 : 0
        // An empty array has no dimension.
        guard !values.isEmpty else {
            for word in [0, 0, element] { append(word, to: &output) }
            return Parameter(type, output)
        }
        // One dimension, whose indices begin at 1.
        for word in [1, hasNull, element, UInt32(truncatingIfNeeded: values.count), 1] { append(word, to: &output) }
        for value in values {
            // The greatest word is the length -1, which means NULL.
            if let value { encode(value, &output) } else { append(UInt32.max, to: &output) }
        }
        return Parameter(type, output)
    }

    @inline(__always)
    private static func append(_ number: some FixedWidthInteger, to output: inout [UInt8]) {
        withUnsafeBytes(of: number.bigEndian) { output.append(contentsOf: $0) }
    }

    private static func bigEndian(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0) }
    }

    /// Passes pointers to the bytes of all parameters to a closure, without copying them. The recursion keeps every
    /// array in place during the call.
    static func withValues(
        _ parameters: [Parameter], _ body: ([UnsafePointer<CChar>?], [Int32]) -> Bool
    ) -> Bool {
        var values: [UnsafePointer<CChar>?] = []
        var lengths: [Int32] = []
        func add(_ rest: ArraySlice<Parameter>) -> Bool {
            guard let parameter = rest.first else { return body(values, lengths) }
            guard let bytes = parameter.bytes else {
                values.append(nil)
                lengths.append(0)
                return add(rest.dropFirst())
            }
            return bytes.withUnsafeBytes { buffer in
                // A null pointer would mean NULL, so an empty value needs an address, too.
                values.append((buffer.baseAddress ?? empty).assumingMemoryBound(to: CChar.self))
                lengths.append(Int32(clamping: buffer.count))
                return add(rest.dropFirst())
            }
        }
        return add(parameters[...])
    }

    // Safe: never read or written.
    /// The address of empty values.
    private nonisolated(unsafe) static let empty = UnsafeRawPointer(
        UnsafeMutableRawPointer.allocate(byteCount: 1, alignment: 1))
}
