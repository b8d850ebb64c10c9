import Bucketing

/// The bytes of a user's id where they lie, and their hash.
struct UserKey {
    let bytes: UnsafeRawBufferPointer
    /// Keyed at random in each process, so that nobody can choose ids that all meet in one place of a table.
    let hash: UInt64
}

extension UserKey {
    init(_ bytes: UnsafeRawBufferPointer) {
        var hasher = Hasher()
        hasher.combine(bytes: bytes)
        self.init(bytes: bytes, hash: UInt64(bitPattern: Int64(hasher.finalize())))
    }
}

@available(*, unavailable) extension UserKey: Sendable {}

extension Identifier {
    /// Lends the key for the time of the call.
    func withKey<Result>(_ body: (UserKey) -> Result) -> Result {
        var text = string
        return text.withUTF8 { body(UserKey(UnsafeRawBufferPointer($0))) }
    }
}
