public import Bucketing

/// What stores remember of users who were erased, or merged into another, for a while.
///
/// - **Changes in processes**: a process may have received changes of a user before another one erased the user, and must
///   not store them afterwards; and it must forget which exposures of either it has recorded.
/// - **Events at edges** may wait there for days. What was accepted of a user before the erasure is dropped when it
///   arrives; what was accepted of an anonymous user before a login counts for the account (``RemovedUser``).
public enum ErasureRules {
    /// How long processes remember an erasure, in seconds. Changes that have waited longer are not stored.
    public static let memory = 3_600.0

    /// How long removals are remembered for events that wait at edges, in milliseconds: longer than an event may be old.
    /// Events that have waited longer are refused.
    public static let memoryForEdges: Timestamp = EventRules.maximumAge + 86_400_000

    /// Marks a user who was merged into another, among the hashes of erased users. The user's waiting changes are
    /// stored.
    public static func mergeHash(_ userID: Identifier) -> Int64 { ~hash(userID) }

    /// - Parameter account: whom the user became part of; `nil` for a user who was erased.
    package static func mark(_ userID: Identifier, into account: Identifier?) -> Int64 {
        account == nil ? hash(userID) : mergeHash(userID)
    }

    /// A hash of the user's id that is the same in all processes. It does not reveal the user.
    public static func hash(_ userID: Identifier) -> Int64 {
        var text = userID.string
        return text.withUTF8 { bytes in
            let bytes = UnsafeRawBufferPointer(bytes)
            let (high, low) = (MurmurHash3.hash(bytes, seed: 2), MurmurHash3.hash(bytes, seed: 3))
            return Int64(bitPattern: UInt64(high) << 32 | UInt64(low))
        }
    }
}

/// That a user was erased, or became part of another.
public struct RemovedUser: Sendable, Hashable {
    /// See ``ErasureRules/hash(_:)``.
    public var userHash: Int64
    public var removedAt: Timestamp
    /// Who has the user's data now; `nil` if it was erased, by now also with the account.
    public var account: Identifier?

    public init(userHash: Int64, removedAt: Timestamp, account: Identifier?) {
        self.userHash = userHash
        self.removedAt = removedAt
        self.account = account
    }

    /// Returns what has become of events that were accepted at a time: what happened first to the user since then; `nil`
    /// if nothing has.
    ///
    /// - Parameter removals: of one user.
    public static func first(since acceptedAt: Timestamp, of removals: [RemovedUser]) -> RemovedUser? {
        removals.filter { $0.removedAt >= acceptedAt }.min { $0.removedAt < $1.removedAt }
    }
}
