/// An append-only file of records with checksums. Torn and damaged records are skipped when it is read, and counted.
///
/// ```
/// "HFLOG001"                                                8 bytes, once
/// length of body | CRC-32 of body | kind | number | payload  4 + 4 bytes, then the body: 1 + 8 + n
/// ```
/// Integers are little-endian.
struct RecordLog {
    /// A record. The log stores its kind and its number, and only the caller interprets them.
    struct Record {
        var kind: UInt8
        var number: UInt64
        /// The content, at most ``RecordLog/maximumPayload`` bytes.
        var payload: [UInt8]
    }

    /// The header of the file.
    private static let magic = Array("HFLOG001".utf8)
    /// Length of the kind and the number in a body, in bytes.
    private static let bodyHeaderLength = 9
    /// Length of the length and the checksum before a body, in bytes.
    private static let prefixLength = 8
    /// Upper bound of a payload in bytes; a greater length means damage.
    static let maximumPayload = 2 * 1024 * 1024

    /// The parts of a file that could not be read.
    struct Losses: Sendable, Equatable {
        /// The path to which the whole file was moved, because it has no known header: it is damaged or of a later
        /// release.
        var file: String?
        /// Number of records with a wrong checksum.
        var records = 0
        /// Length of the file's end that holds no complete record, in bytes.
        var end = 0
    }

    private let path: String
    /// The open file. ``replace(by:since:)`` exchanges it.
    private(set) var file: FileDescriptor
    /// What could not be read when the log was opened.
    let losses: Losses
    /// Length of the file in bytes.
    private(set) var length: Int
    /// Number of calls of ``removeAll()``, which make a ``Position`` invalid.
    private var removals = 0

    /// Opens the log, passes each record to the closure, and truncates an incomplete record at the end. A file without
    /// the header is kept as `path` with the suffix `.unreadable`, where it replaces a former one.
    init(path: String, _ take: (Record) -> Void) throws(HoldfastError) {
        (file, length, losses) = try Self.open(path, take)
        self.path = path
    }

    /// Opens the file, reads its records, and repairs it.
    private static func open(
        _ path: String, _ take: (Record) -> Void
    ) throws(HoldfastError) -> (FileDescriptor, length: Int, Losses) {
        let file = try FileDescriptor(path: path)
        var losses = Losses()
        let header = try file.contents(atMost: magic.count)
        if header == magic {
            let bytes = try file.contents()
            let length = read(bytes, &losses, take)
            losses.end = bytes.count - length
            if losses.end > 0 { try file.truncate(to: length) }
            return (file, length, losses)
        }
        if magic.starts(with: header) {
            // The file is new, or its header is incomplete. The header is written with the first record, so that a full
            // disk does not prevent the start of an app.
            try file.truncate(to: 0)
            return (file, 0, losses)
        }
        losses.file = path + ".unreadable"
        try FileDescriptor.replace(path + ".unreadable", with: path)
        return (try FileDescriptor(path: path), 0, losses)
    }

    /// Passes each complete record with a correct checksum to the closure.
    ///
    /// - Returns: the end of the last complete record.
    private static func read(_ bytes: [UInt8], _ losses: inout Losses, _ take: (Record) -> Void) -> Int {
        var position = magic.count
        while bytes.count - position >= prefixLength {
            let start = position + prefixLength
            // `Int` may have 32 bits, for example on a watch.
            guard let length = Int(exactly: word(bytes[position...])), length >= bodyHeaderLength,
                length <= maximumPayload + bodyHeaderLength, length <= bytes.count - start
            else {
                break
            }
            let body = bytes[start..<start + length]
            if Checksum.crc32(body) == word(bytes[(position + 4)...]) {
                let number = body.dropFirst().prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
                take(Record(kind: body[start], number: number, payload: Array(body.dropFirst(bodyHeaderLength))))
            } else {
                losses.records += 1
            }
            position = start + length
        }
        return position
    }

    /// Appends a record. It survives a crash of the process at once, and a power failure after
    /// ``FileDescriptor/synchronize()``.
    mutating func append(_ record: Record) throws(HoldfastError) {
        let bytes = (length == 0 ? Self.magic : []) + Self.encode(record)
        do throws(HoldfastError) {
            try file.append(bytes)
            length += bytes.count
        } catch {
            // A partial record would hide the records after it.
            try? file.truncate(to: length)
            throw error
        }
    }

    /// Removes all records.
    mutating func removeAll() throws(HoldfastError) {
        guard length > 0 else { return }
        try file.truncate(to: Self.magic.count)
        length = Self.magic.count
        removals += 1
    }

    /// The end of the file at a time. It becomes invalid with ``removeAll()``.
    struct Position {
        fileprivate var removals: Int
        fileprivate var length: Int
    }

    var position: Position { Position(removals: removals, length: length) }

    /// A synchronized file that can replace a log. Creating it needs no lock on the log.
    struct Replacement {
        fileprivate let path: String
        fileprivate let file: FileDescriptor
        fileprivate var length: Int

        /// - Parameter path: the path of the log.
        init(of path: String, _ records: [Record]) throws(HoldfastError) {
            self.path = path + ".new"
            let bytes = records.reduce(into: RecordLog.magic) { $0 += RecordLog.encode($1) }
            file = try FileDescriptor.create(self.path, containing: bytes)
            length = bytes.count
        }
    }

    /// Replaces the contents up to a position atomically, and keeps the records after it. Does not wait for the disk.
    /// If the log was emptied since the position, the replacement is obsolete and has no effect.
    mutating func replace(by replacement: Replacement, since position: Position) throws(HoldfastError) {
        guard position.removals == removals else { return }
        let rest = try file.contents(from: position.length)
        try replacement.file.append(rest)
        try FileDescriptor.replace(path, with: replacement.path)
        file = replacement.file
        length = replacement.length + rest.count
    }

    /// Returns the bytes of a record: the length and the checksum of the body, and the body.
    private static func encode(_ record: Record) -> [UInt8] {
        var body = [record.kind]
        body.reserveCapacity(bodyHeaderLength + record.payload.count)
        withUnsafeBytes(of: record.number.littleEndian) { body += $0 }
        body += record.payload
        var bytes: [UInt8] = []
        bytes.reserveCapacity(prefixLength + body.count)
        withUnsafeBytes(of: UInt32(body.count).littleEndian) { bytes += $0 }
        withUnsafeBytes(of: Checksum.crc32(body).littleEndian) { bytes += $0 }
        return bytes + body
    }

    /// Returns the integer in the first 4 bytes.
    private static func word(_ bytes: ArraySlice<UInt8>) -> UInt32 {
        bytes.prefix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }
}
