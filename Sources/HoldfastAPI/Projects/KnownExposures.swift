import Bucketing
import Storage
internal import Synchronization

/// The exposures that this process has sent to the store lately, so that a user who meets an experiment again and
/// again causes no work there. It may forget, and forgets all after a while; it never takes an exposure for known that
/// was not sent, but for two of one 64-bit hash.
final class KnownExposures: Sendable {
    private struct State {
        var recent: Set<Int> = []
        var former: Set<Int> = []
        /// When `recent` becomes `former`.
        var turn: Timestamp = 0
    }

    private let state = Mutex(State())
    /// Exposures of one generation, of which two are kept.
    private let capacity: Int

    /// Milliseconds until an exposure is sent again for which the store has no more use: so long may it take until
    /// the exposures of a user are noticed who was erased by another process.
    private static let generation: Timestamp = 60_000

    init(capacity: Int = 131_072) {
        self.capacity = capacity
    }

    /// Takes note of an exposure.
    ///
    /// - Returns: whether it was known.
    func insert(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isForced: Bool, at now: Timestamp
    ) -> Bool {
        var hasher = Hasher()
        hasher.combine(userID)
        hasher.combine(UInt8.max)
        hasher.combine(experimentID)
        hasher.combine(UInt8.max)
        hasher.combine(variationID)
        hasher.combine(isForced)
        let hash = hasher.finalize()
        return state.withLock { state in
            // A clock that was set back would keep a generation for as long.
            if now >= state.turn || now < state.turn - Self.generation || state.recent.count >= capacity {
                swap(&state.recent, &state.former)
                state.recent.removeAll(keepingCapacity: true)
                state.turn = now + Self.generation
            }
            return state.former.contains(hash) || !state.recent.insert(hash).inserted
        }
    }

    /// Forgets everything: something that was sent has not been stored, or has been erased since.
    func removeAll() {
        state.withLock { state in
            state.recent.removeAll(keepingCapacity: true)
            state.former.removeAll(keepingCapacity: true)
        }
    }
}
