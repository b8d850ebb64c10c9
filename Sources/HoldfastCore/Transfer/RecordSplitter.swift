import Definitions

/// Splits delimiter-separated values into records of fields (RFC 4180). The bytes may arrive in pieces of any size. A
/// quoted field may contain line feeds.
struct RecordSplitter {
    /// The form of a quotation mark within a quoted field.
    enum Escape {
        /// `""`, as in RFC 4180.
        case doubledQuote
        /// `\"`, as in the output of `cqlsh`. A backslash escapes any character, also outside of quotes.
        case backslash
    }

    /// A complete record.
    struct Record {
        /// The line on which the record begins, from 1.
        var line: Int
        /// The fields, or the fault of the record.
        var fields: Result<[[UInt8]], CoreError>
    }

    /// The state after the last byte.
    private enum State {
        /// At the start of a field.
        case fieldStart
        /// Within a field without quotation marks.
        case plain
        /// Within a quoted field.
        case quoted
        /// After a quotation mark in a quoted field. It either closes the field or is the first of two.
        case quoteInQuotes
        /// After the carriage return that follows a quoted field.
        case lineEnd
        /// After a backslash.
        case escaped(inQuotes: Bool)
        /// The record is malformed; the rest of the line is skipped.
        case malformed
    }

    private let delimiter: UInt8
    private let escape: Escape
    private var state = State.fieldStart
    /// The complete fields of the current record.
    private var fields: [[UInt8]] = []
    /// The bytes of the current field.
    private var field: [UInt8] = []
    /// The length of the current record in bytes.
    private var length = 0
    /// The number of the current line.
    private var line = 1
    /// The number of the line on which the current record begins.
    private var recordLine = 1
    /// The fault of the current record.
    private var error: CoreError?
    /// Whether anything but line ends was read since the last record. Empty lines are no records.
    private var isWithinRecord = false
    /// The next bytes of a byte order mark, which may be at the start of the input and is skipped; empty after it.
    private var byteOrderMark: ArraySlice<UInt8> = [0xEF, 0xBB, 0xBF]

    private static let quote = UInt8(ascii: "\"")
    private static let backslash = UInt8(ascii: "\\")

    init(delimiter: UInt8, escape: Escape) {
        self.delimiter = delimiter
        self.escape = escape
    }

    /// Reads the next bytes, and reports every record that is complete.
    mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (Record) -> Void) {
        for byte in bytes { take(byte, report) }
    }

    /// Ends the stream, and reports the last record.
    mutating func end(_ report: (Record) -> Void) {
        switch state {
        case .quoted, .escaped:
            error = error ?? CoreError(.invalid, "a quoted field must be closed by a quotation mark; the input ends")
        default: break
        }
        if isWithinRecord { finishRecord(report) }
    }

    /// Takes the next byte: the transition of the state machine.
    private mutating func take(_ byte: UInt8, _ report: (Record) -> Void) {
        guard !skipsByteOrderMark(byte) else { return }
        defer { if byte == 0x0A { line += 1 } }
        length += 1
        if length > ImportedElement.lengthLimit, error == nil { refuseTooLong() }
        switch state {
        case .fieldStart where byte == Self.quote:
            isWithinRecord = true
            state = .quoted
        case .fieldStart, .plain: takePlain(byte, report)
        case .quoted: takeQuoted(byte)
        case .quoteInQuotes: takeAfterQuote(byte, report)
        case .lineEnd where byte == 0x0A: endLine(report)
        // Text whose line ends were converted twice has several CR.
        case .lineEnd where byte == 0x0D: break
        case .lineEnd: refuseAfterQuote()
        case .escaped(let inQuotes):
            field.append(byte)
            state = inQuotes ? .quoted : .plain
        case .malformed:
            if byte == 0x0A { finishRecord(report) }
        }
    }

    /// Returns whether a byte belongs to a byte order mark at the start of the input.
    private mutating func skipsByteOrderMark(_ byte: UInt8) -> Bool {
        guard let expected = byteOrderMark.first else { return false }
        let isMark = byte == expected
        byteOrderMark = isMark ? byteOrderMark.dropFirst() : []
        return isMark
    }

    /// Takes a byte outside of quotation marks.
    private mutating func takePlain(_ byte: UInt8, _ report: (Record) -> Void) {
        switch byte {
        case delimiter: finishField()
        case 0x0A: endLine(report)
        case Self.backslash where escape == .backslash: state = .escaped(inQuotes: false)
        case Self.quote:
            refuse("a field with a quotation mark must be quoted")
        default:
            field.append(byte)
            state = .plain
        }
        if byte != 0x0A, byte != 0x0D { isWithinRecord = true }
    }

    /// Takes a byte within quotation marks.
    private mutating func takeQuoted(_ byte: UInt8) {
        switch byte {
        case Self.quote: state = .quoteInQuotes
        case Self.backslash where escape == .backslash: state = .escaped(inQuotes: true)
        default: field.append(byte)
        }
    }

    /// Takes the byte after a quotation mark within quotes.
    private mutating func takeAfterQuote(_ byte: UInt8, _ report: (Record) -> Void) {
        switch byte {
        case Self.quote where escape == .doubledQuote:
            field.append(byte)
            state = .quoted
        case delimiter: finishField()
        case 0x0A: endLine(report)
        // The CR of a line that ends with CR LF.
        case 0x0D: state = .lineEnd
        default: refuseAfterQuote()
        }
    }

    private mutating func refuseAfterQuote() {
        refuse("a delimiter or the end of the line must follow a quoted field")
    }

    /// Marks the current record as too long, and releases its fields.
    private mutating func refuseTooLong() {
        error = CoreError(
            .tooLarge,
            "a record must be at most \(ImportedElement.lengthLimit) bytes long; "
                + "a quotation mark that is never closed may be the cause")
        state = .malformed
        fields = []
        field = []
    }

    /// Marks the current record as malformed. The first fault is reported.
    private mutating func refuse(_ detail: String) {
        error = error ?? CoreError(.invalid, detail)
        state = .malformed
    }

    private mutating func finishField() {
        fields.append(field)
        field.removeAll(keepingCapacity: true)
        state = .fieldStart
    }

    /// Ends the record at a line feed. A carriage return before it is not part of a plain field.
    private mutating func endLine(_ report: (Record) -> Void) {
        if case .plain = state, field.last == 0x0D { field.removeLast() }
        finishRecord(report)
    }

    /// Reports a record, unless the line is empty.
    private mutating func finishRecord(_ report: (Record) -> Void) {
        finishField()
        if isWithinRecord {
            report(Record(line: recordLine, fields: error.map { .failure($0) } ?? .success(fields)))
        }
        fields.removeAll(keepingCapacity: true)
        error = nil
        length = 0
        isWithinRecord = false
        recordLine = line + 1
    }
}
