/// The changes of users in a commit, in order.
///
/// All changes are in one flat buffer. The readers share it across threads, and would contend for the reference counts
/// of separate values.
///
/// ```
/// change  hash 8 | key length 4 | record length 4 | key | record | padding to 8     (sizes in bytes)
/// ```
struct UserChanges: Sendable {
    /// A change, valid only during the call that it is passed to.
    struct Change {
        let key: UserKey
        let content: Content
    }

    enum Content {
        /// The new record; `nil` if the profile was deleted.
        case profile(record: UnsafeRawBufferPointer?)
        /// The attributes have changed, or were deleted.
        case attributes
    }

    /// The size of a change without its key and record, in bytes.
    private static let headerSize = 16
    /// The record length of a deleted profile.
    private static let noRecord = UInt32.max
    /// The record length of changed attributes, which have no record here.
    private static let attributes = UInt32.max - 1

    private var bytes: [UInt8] = []

    /// The size in bytes.
    var size: Int { bytes.count }

    /// Appends the change of a profile.
    ///
    /// - Parameter record: the new record; `nil` if the profile was deleted.
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

    /// Calls `body` with each change, in order.
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
                body(
                    Change(key: key, content: recordLength == Self.attributes ? .attributes : .profile(record: record)))
                rest = rest.dropFirst((end + 7) & ~7)
            }
        }
    }
}
