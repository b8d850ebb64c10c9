public import Bucketing
public import Chronology

/// Stores remember for a while which users were erased or merged into another, because data about these users may still
/// be on its way:
///
/// - **Changes that wait in a process**: a process may have received changes of a user before another process erased
///   the user. It must not store these changes afterwards. It also remembers which exposures it has recorded, and must
///   forget the exposures of an erased user, or of both users after a merge.
/// - **Events that wait at an edge**, perhaps for days: events that the edge accepted before an erasure are dropped
///   when they arrive. Events that the edge accepted before a merge count for the account (``RemovedUser``).
public enum ErasureRules {
    /// How long an erasure is remembered for changes that wait in processes. Changes that have waited longer are not
    /// stored.
    public static let memory = TimeSpan.hours(1)

    /// How long erasures and merges are remembered for events that wait at edges: longer than
    /// ``EventRules/maximumAge``, because older events are refused anyway.
    public static let memoryForEdges = EventRules.maximumAge + .days(1)

    /// Returns the mark of a merged user in the list of removed users. It differs from ``hash(_:)``, the mark of an
    /// erased user, because waiting changes of a merged user are still stored.
    public static func mergeHash(_ userID: Identifier) -> Int64 { ~hash(userID) }

    /// Returns the mark of a removed user; see ``UserRemoval/mark``.
    ///
    /// - Parameter account: the account into which the user was merged; `nil` for a user who was erased.
    package static func mark(_ userID: Identifier, into account: Identifier?) -> Int64 {
        account == nil ? hash(userID) : mergeHash(userID)
    }

    /// Returns a hash of 64 bits of a user's id. Stores keep the hash, because the id of an erased user must not be
    /// kept. All processes compute the same hash.
    public static func hash(_ userID: Identifier) -> Int64 {
        var text = userID.string
        return text.withUTF8 { bytes in
            let bytes = UnsafeRawBufferPointer(bytes)
            // Two hashes of 32 bits with different seeds. Stored hashes depend on the seeds.
            let high = MurmurHash3.hash(bytes, seed: 2)
            let low = MurmurHash3.hash(bytes, seed: 3)
            return Int64(bitPattern: UInt64(high) << 32 | UInt64(low))
        }
    }
}

/// A record that a user was erased, or merged into an account, for events that wait at edges.
public struct RemovedUser: Sendable, Hashable {
    /// See ``ErasureRules/hash(_:)``.
    public var userHash: Int64
    public var removedAt: Instant
    /// The account into which the user was merged; `nil` if the user was erased, or if the account was erased later.
    public var account: Identifier?

    public init(userHash: Int64, removedAt: Instant, account: Identifier?) {
        self.userHash = userHash
        self.removedAt = removedAt
        self.account = account
    }

    /// Returns the first removal of a user since an edge accepted an event; `nil` if there was none. The first removal
    /// determines what becomes of the event, because the id may have been used and removed again later.
    ///
    /// - Parameter removals: all removals of one user, in any order.
    public static func first(since acceptedAt: Instant, of removals: [RemovedUser]) -> RemovedUser? {
        removals.filter { $0.removedAt >= acceptedAt }.min { $0.removedAt < $1.removedAt }
    }
}

/// The removal of a user, for processes whose changes of the user may wait; see ``ErasureRules/memory``. The
/// counterpart for events that wait at edges is ``RemovedUser``.
public struct UserRemoval: Sendable, Hashable {
    /// The ``ErasureRules/hash(_:)`` of an erased user, or the ``ErasureRules/mergeHash(_:)`` of a merged user.
    public var mark: Int64
    /// When the user was removed. The clock and its unit depend on the store.
    public var time: Int64

    public init(mark: Int64, time: Int64) {
        self.mark = mark
        self.time = time
    }

    /// Two numbers, one of which is the user's ``ErasureRules/hash(_:)``: ``mark`` itself after an erasure, or its
    /// complement after a merge.
    public var userHashes: [Int64] { [mark, ~mark] }
}
