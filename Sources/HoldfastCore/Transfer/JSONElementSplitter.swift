/// Splits a stream of bytes into the elements of a JSON array, or into lines if the stream is not an array. The bytes
/// may arrive in pieces of any size. The first character other than white space decides: `[` begins an array.
struct JSONElementSplitter {
    private enum Form {
        /// Only white space has arrived.
        case unknown
        case lines(LineSplitter)
        case array(ArrayScanner)
    }

    /// The maximum length of an element in bytes.
    private let limit: Int
    private var form = Form.unknown
    /// The number of the line on which the first element begins, from 1.
    private var line = 1

    init(limit: Int) {
        self.limit = limit
    }

    /// Reads the next bytes, and reports every element that is complete.
    ///
    /// - Parameter element: receives the place where an element begins, and the bytes of the element, or `nil` if it
    ///   exceeds the limit.
    mutating func append(
        _ bytes: UnsafeRawBufferPointer, _ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void
    ) {
        var bytes = bytes[...]
        if case .unknown = form {
            guard let start = bytes.firstIndex(where: { !ArrayScanner.isSpace($0) }) else {
                line += bytes.count { $0 == 0x0A }
                return
            }
            line += bytes[..<start].count { $0 == 0x0A }
            let isArray = bytes[start] == UInt8(ascii: "[")
            if isArray {
                form = .array(ArrayScanner(limit: limit, line: line))
                bytes = bytes[(start + 1)...]
            } else {
                form = .lines(LineSplitter(limit: limit, firstLine: line))
                bytes = bytes[start...]
            }
        }
        let rest = UnsafeRawBufferPointer(rebasing: bytes)
        // `form` gives up its copy of the splitter, because changing a splitter with two copies copies the buffer.
        switch form {
        case .lines(var splitter):
            form = .unknown
            splitter.append(rest) { Self.report($0, $1, element) }
            form = .lines(splitter)
        case .array(var scanner):
            form = .unknown
            for byte in rest { scanner.take(byte, element) }
            form = .array(scanner)
        case .unknown: break
        }
    }

    /// Ends the stream, and reports the last element.
    mutating func end(_ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void) {
        switch form {
        case .lines(var splitter):
            splitter.end { Self.report($0, $1, element) }
        case .array(var scanner): scanner.end(element)
        case .unknown: break
        }
    }

    /// Reports a line, unless it is blank.
    private static func report(
        _ line: Int, _ text: UnsafeRawBufferPointer?,
        _ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void
    ) {
        if text.map({ !LineSplitter.isBlank($0) }) ?? true { element(.init(line: line), text) }
    }
}

/// Finds the elements of a JSON array by counting brackets, without checking that the elements are valid JSON.
private struct ArrayScanner {
    private let limit: Int
    /// The number of the current line.
    private var line: Int
    /// Where the current element begins.
    private var start = ImportedElement.Place(line: 0, element: 0)
    /// The bytes of the current element.
    private var bytes: [UInt8] = []
    /// Whether the current element exceeds the limit, so that its bytes are dropped.
    private var isOverlong = false
    /// The number of brackets and braces that are open within the current element.
    private var depth = 0
    private var isInString = false
    /// Whether the last byte was a backslash in a string, which escapes the next byte.
    private var isEscaped = false
    /// Whether the closing bracket of the array was read. The rest of the input is ignored.
    private var hasEnded = false
    /// A buffer up to this capacity in bytes is kept for the next element; a larger one is released.
    private static let keptCapacity = 64 * 1024

    init(limit: Int, line: Int) {
        self.limit = limit
        self.line = line
    }

    static func isSpace(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D
    }

    /// Takes the next byte, and reports the current element if it is complete.
    mutating func take(_ byte: UInt8, _ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void) {
        defer { if byte == 0x0A { line += 1 } }
        guard !hasEnded else { return }
        if depth == 0, !isInString {
            if byte == UInt8(ascii: ",") || byte == UInt8(ascii: "]") {
                finish(element)
                hasEnded = byte == UInt8(ascii: "]")
                return
            }
            if bytes.isEmpty, !isOverlong {
                guard !Self.isSpace(byte) else { return }
                start.line = line
            }
        }
        isOverlong = isOverlong || bytes.count == limit
        if isOverlong { bytes.removeAll() } else { bytes.append(byte) }
        track(byte)
    }

    /// Updates ``depth``, ``isInString`` and ``isEscaped`` after a byte of an element.
    private mutating func track(_ byte: UInt8) {
        if isInString {
            if isEscaped {
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == UInt8(ascii: "\"") {
                isInString = false
            }
            return
        }
        switch byte {
        case UInt8(ascii: "\""): isInString = true
        case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: "}"), UInt8(ascii: "]"): depth = max(0, depth - 1)
        default: break
        }
    }

    /// Ends the stream. If the array is not closed, its last element is incomplete; the parser then refuses it.
    mutating func end(_ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void) {
        if !hasEnded { finish(element) }
    }

    /// Reports the current element, and begins the next one.
    private mutating func finish(_ element: (ImportedElement.Place, UnsafeRawBufferPointer?) -> Void) {
        start.element = (start.element ?? 0) + 1
        if isOverlong {
            element(start, nil)
        } else if !bytes.isEmpty {
            bytes.withUnsafeBytes { element(start, $0) }
        }
        bytes.removeAll(keepingCapacity: bytes.capacity <= Self.keptCapacity)
        isOverlong = false
    }
}
