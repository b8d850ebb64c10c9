import Bucketing

/// What a commit changed of users, in order. All readers look through the same piece of memory, each on its own
/// thread, so it is one without references, which the threads would have to count together.
///
/// ```
/// change  hash 8 | key length 4 | record length 4 | key | record | padding to 8
/// ```
struct UserChanges: Sendable {
    struct Change {
        let key: UserKey
        let content: Content
    }

    enum Content {
        /// The record that is stored now; `nil` when there is no profile any more.
        case profile(record: UnsafeRawBufferPointer?)
        case attributes
    }

    private static let headerSize = 16
    private static let noRecord = UInt32.max
    private static let attributes = UInt32.max - 1

    private var bytes: [UInt8] = []

    /// What they take in memory.
    var size: Int { bytes.count }

    /// - Parameter record: what is stored now; `nil` when there is no profile any more.
    mutating func appendProfile(_ record: [UInt8]?, of key: UserKey) {
        append(key, recordLength: record.map { UInt32(truncatingIfNeeded: $0.count) } ?? Self.noRecord, record ?? [])
    }

    mutating func appendAttributes(of key: UserKey) {
        append(key, recordLength: Self.attributes, [])
    }

    private mutating func append(_ key: UserKey, recordLength: UInt32, _ record: [UInt8]) {
        let lengths = (UInt32(truncatingIfNeeded: key.bytes.count), recordLength)
        withUnsafeBytes(of: key.hash) { bytes.append(contentsOf: $0) }
        withUnsafeBytes(of: lengths) { bytes.append(contentsOf: $0) }
        bytes.append(contentsOf: key.bytes)
        bytes.append(contentsOf: record)
        while bytes.count % 8 != 0 { bytes.append(0) }
    }

    func forEach(_ body: (Change) -> Void) {
        bytes.withUnsafeBytes { all in
            var rest = all[...]
            while rest.count >= Self.headerSize {
                let start = UnsafeRawBufferPointer(rebasing: rest)
                let keyLength = Int(start.load(fromByteOffset: 8, as: UInt32.self))
                let recordLength = start.load(fromByteOffset: 12, as: UInt32.self)
                let hasRecord = recordLength < Self.attributes
                let recordStart = Self.headerSize + keyLength
                let end = recordStart + (hasRecord ? Int(recordLength) : 0)
                let key = UserKey(
                    bytes: UnsafeRawBufferPointer(rebasing: start[Self.headerSize..<recordStart]),
                    hash: start.load(as: UInt64.self))
                let record = hasRecord ? UnsafeRawBufferPointer(rebasing: start[recordStart..<end]) : nil
                body(Change(key: key, content: recordLength == Self.attributes ? .attributes : .profile(record: record)))
                rest = rest.dropFirst((end + 7) & ~7)
            }
        }
    }
}
