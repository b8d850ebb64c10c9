internal import Dispatch
import Storage
internal import Synchronization

/// Removes users from ``KnownExposures`` when any process has erased them or merged them into others.
///
/// The store lists recent removals of users by time. Four times a second, the watch reads the removals since its last
/// read. A removal may be committed later than others with a greater time, so the store returns the removals of the
/// last transactions again. The watch leaves out those that it has read before.
public final class RemovalWatch: Sendable {
    private let known: KnownExposures
    private let session: BackgroundSession
    private let lastRead = Mutex(LastRead())
    private let timer = RepeatedTask(every: .milliseconds(250))

    /// The state of the last read.
    private struct LastRead {
        /// The greatest ``Storage/UserRemoval/time`` that was read.
        var time: Int64 = 0
        /// The removals that the last read returned. The next read may return some of them again.
        var removals: Set<UserRemoval> = []

        /// Updates the state after a read, and returns the removals that are new.
        mutating func update(after read: [UserRemoval]) -> [UserRemoval] {
            let new = read.filter { !removals.contains($0) }
            removals = Set(read)
            time = max(time, read.lazy.map(\.time).max() ?? time)
            return new
        }
    }

    /// Begins to read removals from the store, until the watch is released.
    public init(_ catalog: ProjectCatalog, _ known: KnownExposures) {
        self.known = known
        session = catalog.updates
        timer.start { [weak self] in await self?.update() }
    }

    /// Reads the newest removals, and forgets the exposures of these users.
    private func update() async {
        let time = lastRead.withLock(\.time)
        do throws(StorageError) {
            let read = try await session.run { session throws(StorageError) in
                try await session.read(.removals(after: time))
            }
            let new = lastRead.withLock { $0.update(after: read) }
            known.forget(new.flatMap(\.userHashes))
        } catch {
            // A closed store stays closed. After any other failure, the next read returns the removals that this read
            // has missed.
            if case .closed = error { timer.close() }
        }
    }
}
