public import Bucketing
public import Chronology
internal import Dispatch
import Storage
internal import Synchronization

/// A cache of the exposures that this process recently sent to the store, so that repeated exposures cost the store no
/// work.
///
/// The cache may forget an exposure at any time; the exposure is then only sent again. It never reports an unsent
/// exposure as known, except in a collision of 64-bit hashes.
///
/// Only hashes are kept, in two generations. New exposures are added to the recent one; when it is full or too old, it
/// becomes the former one, and the former one is dropped.
///
/// When a user is erased, or merged into another, the user's exposures are forgotten: in this process at once, in
/// others by a ``RemovalWatch``. The hashes do not tell whose exposures they are, so they are not removed. Instead,
/// each later exposure of the user gets another hash.
public final class KnownExposures: Sendable {
    /// The exposures that were added in one period.
    private struct Generation {
        var exposures: Set<Int> = []
        /// For each forgotten user, by the hash of the id: a number that is mixed into the hashes of later exposures,
        /// so that earlier hashes no longer match. The number is kept at least as long as any exposure that was added
        /// before it.
        var forgotten: [Int64: Int] = [:]

        mutating func removeAll() {
            exposures.removeAll(keepingCapacity: true)
            forgotten.removeAll(keepingCapacity: true)
        }
    }

    private struct State {
        var recent = Generation()
        var former = Generation()
        /// When `recent` becomes `former`.
        var rotation = Instant.epoch
        /// The last number of a forgotten user.
        var lastNumber = 0

        /// Begins a new generation.
        mutating func rotate(at now: Instant, _ span: TimeSpan) {
            // After a long pause the recent generation has expired as well.
            if now >= rotation + span { recent.removeAll() }
            endGeneration()
            rotation = now + span
        }

        mutating func endGeneration() {
            swap(&recent, &former)
            recent.removeAll()
        }
    }

    private let state = Mutex(State())
    /// The maximum number of exposures in one generation; two generations are kept.
    private let capacity: Int
    /// The length of a generation. An exposure is remembered for one to two generations.
    private let generation: TimeSpan

    public init(capacity: Int = 131_072, generation: TimeSpan = .minutes(1)) {
        self.capacity = capacity
        self.generation = generation
    }

    /// Returns a larger cache for an edge, which sends unknown exposures over the network. A generation takes 8 MiB: a
    /// set of 2^20 places, which is filled to three quarters.
    public static func ofEdge() -> KnownExposures {
        KnownExposures(capacity: 3 << 18, generation: .hours(1))
    }

    /// Remembers an exposure.
    ///
    /// - Returns: whether it was already known, and its key for ``remove(_:)``.
    public func insert(
        _ userID: Identifier, _ experimentID: Identifier, _ variationID: Identifier, isChosen: Bool, at now: Instant
    ) -> (isKnown: Bool, key: Int) {
        let exposure = Self.hash(userID, experimentID, variationID, isChosen: isChosen)
        return state.withLock { state in
            // The second condition is true if the clock was set back; otherwise the generation would last too long.
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

    /// Returns the hash of an exposure. The bytes between the ids separate them, so that "ab" and "c" differ from "a"
    /// and "bc".
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

    /// Spreads the bits of a number, by the multiplication with an odd constant; 0 stays 0.
    private static func spread(_ number: Int) -> Int { number &* -0x61C8_8646_80B5_83EB }

    /// Forgets the exposures of users who were erased or merged.
    ///
    /// - Parameter userHashes: see ``ErasureRules/hash(_:)``.
    public func forget(_ userHashes: some Sequence<Int64>) {
        state.withLock { state in
            for user in userHashes {
                state.lastNumber += 1
                state.recent.forgotten[user] = state.lastNumber
                // Without new exposures nothing else ends a generation.
                if state.recent.forgotten.count >= capacity { state.endGeneration() }
            }
        }
    }

    /// Forgets exposures that were not stored, so that they are sent again. Stored exposures stay known, so repeated
    /// attempts have fewer and fewer exposures to store.
    public func remove(_ keys: some Sequence<Int>) {
        state.withLock { state in
            for key in keys {
                state.recent.exposures.remove(key)
                state.former.exposures.remove(key)
            }
        }
    }
}

/// Makes a process forget the exposures of users whom any process erases or merges into others.
public final class RemovalWatch: Sendable {
    private let known: KnownExposures
    private let session: BackgroundSession
    /// The state of the last read.
    private let last = Mutex(Last())
    private let timer = RepeatedTask(every: .milliseconds(250))

    /// The position in the removals up to which they were read.
    private struct Last {
        var time: Int64 = 0
        /// The removals of the last read. The next one may include some of them again.
        var removals: Set<UserRemoval> = []

        /// Returns the removals that were not read before.
        mutating func take(_ read: [UserRemoval]) -> [UserRemoval] {
            let new = read.filter { !removals.contains($0) }
            removals = Set(read)
            time = max(time, read.lazy.map(\.time).max() ?? time)
            return new
        }
    }

    /// Begins to read removals from the store, four times a second until the watch is released.
    public init(_ catalog: ProjectCatalog, _ known: KnownExposures) {
        self.known = known
        session = catalog.updates
        timer.start { [weak self] in await self?.update() }
    }

    /// Reads the newest removals, and forgets the exposures of these users.
    private func update() async {
        let time = last.withLock(\.time)
        do throws(StorageError) {
            let read = try await session.run { session throws(StorageError) in
                try await session.read(.removals(after: time))
            }
            known.forget(last.withLock { $0.take(read) }.flatMap(\.userHashes))
        } catch {
            // After any other failure, the next read includes the removals that this one has missed.
            if case .closed = error { timer.close() }
        }
    }
}
