public import Bucketing
public import Chronology
import Storage
internal import Synchronization

/// A cache of the exposures that this process recently sent to the store, so that repeated exposures cost the store no
/// work.
///
/// The cache may forget an exposure at any time. The exposure is then sent again, which does no harm. The cache never
/// reports an unsent exposure as known, except if two 64-bit hashes collide.
///
/// Only hashes are kept, in two generations. New exposures are added to the recent generation. When the recent
/// generation is full or too old, it replaces the former generation, and a new one begins.
///
/// When a user is erased or merged into another user, the user's exposures are forgotten: in this process at once, in
/// other processes by a ``RemovalWatch``. A hash does not show whose exposure it is, so the hashes stay. Instead, each
/// later exposure of the user gets another hash.
public final class KnownExposures: Sendable {
    /// The exposures that were added in one period.
    private struct Generation {
        var exposures: Set<Int> = []
        /// The forgotten users, by the hash of the id. The value is a number that is mixed into the hashes of the
        /// user's later exposures, so that earlier hashes no longer match. It is kept in the recent generation, so it
        /// lives at least as long as all exposures that were added before it.
        var forgotten: [Int64: Int] = [:]

        mutating func removeAll() {
            exposures.removeAll(keepingCapacity: true)
            forgotten.removeAll(keepingCapacity: true)
        }
    }

    private struct State {
        var recent = Generation()
        var former = Generation()
        /// The time at which `recent` becomes `former`.
        var rotation = Instant.epoch
        /// The number that the last forgotten user got; see ``Generation/forgotten``.
        var lastNumber = 0

        /// Begins a new generation, which lasts for `span`.
        mutating func rotate(at now: Instant, _ span: TimeSpan) {
            // After a long pause the recent generation has expired as well.
            if now >= rotation + span { recent.removeAll() }
            endGeneration()
            rotation = now + span
        }

        /// Makes the recent generation the former one.
        mutating func endGeneration() {
            swap(&recent, &former)
            recent.removeAll()
        }
    }

    private let state = Mutex(State())
    /// The maximum number of exposures in one generation, and of forgotten users. Two generations are kept.
    private let capacity: Int
    /// The length of a generation. An exposure is remembered for one to two generations.
    private let generation: TimeSpan

    public init(capacity: Int = 131_072, generation: TimeSpan = .minutes(1)) {
        self.capacity = capacity
        self.generation = generation
    }

    /// Returns a larger cache for an edge, because an edge sends unknown exposures over the network. A generation takes
    /// 8 MiB: the set has 2^20 slots of 8 bytes, and 3 · 2^18 exposures fill three quarters of them, the maximum load.
    public static func ofEdge() -> KnownExposures {
        KnownExposures(capacity: 3 << 18, generation: .hours(1))
    }

    /// Remembers an exposure.
    ///
    /// - Parameter isChosen: whether the variation was chosen for the user, which makes it a different exposure.
    /// - Returns: whether the exposure was already known, and its key for ``remove(_:)``.
    public func insert(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isChosen: Bool, at now: Instant
    ) -> (isKnown: Bool, key: Int) {
        let exposure = Self.hash(userID, experimentID, variationID, isChosen: isChosen)
        return state.withLock { state in
            // If the clock was set back, the end of the generation is too far ahead.
            if now >= state.rotation || now < state.rotation - generation
                || state.recent.exposures.count >= capacity || state.recent.forgotten.count >= capacity
            {
                state.rotate(at: now, generation)
            }
            var hash = exposure
            if !state.recent.forgotten.isEmpty || !state.former.forgotten.isEmpty {
                let user = ErasureRules.hash(userID)
                hash ^= Self.spread(state.recent.forgotten[user] ?? state.former.forgotten[user] ?? 0)
            }
            return (state.former.exposures.contains(hash) || !state.recent.exposures.insert(hash).inserted, hash)
        }
    }

    /// Returns the hash of an exposure. A byte separates the ids, so that "ab" and "c" differ from "a" and "bc".
    private static func hash(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isChosen: Bool
    ) -> Int {
        var hasher = Hasher()
        hasher.combine(userID)
        hasher.combine(UInt8.max)
        hasher.combine(experimentID)
        hasher.combine(UInt8.max)
        hasher.combine(variationID)
        hasher.combine(isChosen)
        return hasher.finalize()
    }

    /// Spreads a small number over all bits of a hash, by multiplication with an odd constant (Fibonacci hashing). The
    /// number 0, for users who were not forgotten, stays 0.
    private static func spread(_ number: Int) -> Int { number &* -0x61C8_8646_80B5_83EB }

    /// Forgets the exposures of users who were erased or merged.
    ///
    /// - Parameter userHashes: see ``ErasureRules/hash(_:)``.
    public func forget(_ userHashes: some Sequence<Int64>) {
        state.withLock { state in
            for user in userHashes {
                state.lastNumber += 1
                state.recent.forgotten[user] = state.lastNumber
                // Only new exposures end a generation otherwise, and there may be none.
                if state.recent.forgotten.count >= capacity { state.endGeneration() }
            }
        }
    }

    /// Forgets exposures that were not stored, so that they are sent again.
    ///
    /// - Parameter keys: the keys that ``insert(_:_:_:isChosen:at:)`` has returned.
    public func remove(_ keys: some Sequence<Int>) {
        state.withLock { state in
            for key in keys {
                state.recent.exposures.remove(key)
                state.former.exposures.remove(key)
            }
        }
    }
}
