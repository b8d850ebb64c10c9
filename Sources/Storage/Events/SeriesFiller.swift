import Bucketing
import Dispatch
import Synchronization

/// Computes users' totals of new ``TrackedSeries`` from the stored events, and deletes those of dropped series. It
/// works in the background, in small transactions that do not delay other changes.
///
/// Progress is stored, so any process can continue the work, also after a restart. Repeating a step changes nothing.
/// Where several processes share a database, the process whose progress was recorded continues, and the others pause.
public final class SeriesFiller: @unchecked Sendable {
    // Safe: a timer source may be cancelled from any thread; all else is Sendable.
    private let session: BackgroundSession
    private let batch: Int
    private let state = Mutex(State())
    /// Starts the work from time to time, because another process may have left some.
    private let timer: any DispatchSourceTimer
    private static let interval = DispatchTimeInterval.seconds(30)

    private struct State {
        var isRunning = false
        /// Whether ``start()`` was called since the last round of work began.
        var isAsked = false
        var isClosed = false
    }

    /// - Parameter batch: the number of users that one transaction covers.
    public init(_ store: any Store, batch: Int = 200) throws(StorageError) {
        session = try BackgroundSession(store, label: "metric-series", qos: .utility)
        self.batch = batch
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "metric-series-timer", qos: .utility))
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval, leeway: .seconds(1))
        timer.setEventHandler { [weak self] in self?.start() }
        timer.resume()
    }

    /// Begins the work. If it is in progress, another round follows.
    public func start() {
        let begins = state.withLock { state in
            state.isAsked = true
            guard !state.isRunning, !state.isClosed else { return false }
            state.isRunning = true
            return true
        }
        guard begins else { return }
        session.start { session in await self.work(session) }
    }

    /// Ends the work after the current step. Blocks until then.
    public func close() {
        timer.cancel()
        state.withLock { $0.isClosed = true }
        session.close()
    }

    /// Repeats the work as long as ``start()`` was called meanwhile.
    private func work(_ session: any StoreSession) async {
        while state.withLock({ state in
            state.isRunning = state.isAsked && !state.isClosed
            state.isAsked = false
            return state.isRunning
        }) {
            // Readiness and metrics report failures of the store. The next start, also by the timer, tries again.
            try? await run(session)
        }
    }

    /// Works until nothing is left to do, or another process does the work.
    public func run() async throws(StorageError) {
        try await session.run { session throws(StorageError) in try await self.run(session) }
    }

    private func run(_ session: any StoreSession) async throws(StorageError) {
        guard try await session.read(.openSeries) else { return }
        var progress = try await session.write(.continueSeries(nil, upTo: nil))
        while let next = progress.next, progress.isNoted, !state.withLock({ $0.isClosed }) {
            let page = try await session.read(.exposures(after: next.after, limit: batch))
            let changes = page.map(\.exposure).filter { next.experimentIDs.contains($0.experimentID) }
                .map { UserChange.settleSeries(of: $0.userID, in: $0.experimentID) }
            if !changes.isEmpty { try await Self.write(changes, session) }
            progress = try await session.write(.continueSeries(next, upTo: page.last?.number))
        }
    }

    private static func write(_ changes: [UserChange<Void>], _ session: any StoreSession) async throws(StorageError) {
        let results: [Result<Void, StorageError>] = await settled { done in session.write(changes, done) }
        for result in results {
            if case .failure(let error) = result, !error.concernsOneUser { throw error }
        }
    }
}
