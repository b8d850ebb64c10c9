import Bucketing
import Dispatch
import Synchronization

/// Computes users' totals of new ``TrackedSeries`` from the stored events, and deletes users' totals of dropped series.
/// The filler works in the background, in small transactions that do not delay other changes.
///
/// The work consists of rounds, and a round consists of steps (``SeriesWork``), one for each page of exposures. The
/// progress is stored after each step, so any process can continue the work, also after a restart. Repeating a step
/// changes nothing. If several processes share a database, the process whose step was recorded continues, and the
/// others pause until the next round.
public final class SeriesFiller: @unchecked Sendable {
    // Safe: a timer source may be cancelled from any thread. All other properties are Sendable.
    private let session: BackgroundSession
    /// The number of exposures that one step covers.
    private let batch: Int
    private let state = Mutex(State())
    /// Starts a round from time to time, because another process may have stopped with work left.
    private let timer: any DispatchSourceTimer
    /// The time between two rounds that the timer starts.
    private static let interval = DispatchTimeInterval.seconds(30)

    private struct State {
        var isRunning = false
        /// Whether ``start()`` was called since the last round began.
        var isRequested = false
        var isClosed = false
    }

    /// - Parameter batch: the number of exposures that one step covers.
    /// - Throws: the errors of ``Store/makeSession(on:)``
    public init(_ store: any Store, batch: Int = 200) throws(StorageError) {
        session = try BackgroundSession(store, label: "metric-series", qos: .utility)
        self.batch = batch
        timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "metric-series-timer", qos: .utility))
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval, leeway: .seconds(1))
        timer.setEventHandler { [weak self] in self?.start() }
        timer.resume()
    }

    /// Begins a round in the background. If a round is in progress, another one follows.
    public func start() {
        let begins = state.withLock { state in
            state.isRequested = true
            guard !state.isRunning, !state.isClosed else { return false }
            state.isRunning = true
            return true
        }
        guard begins else { return }
        session.start { session in await self.runRounds(session) }
    }

    /// Ends the work after the current step. Blocks until then.
    public func close() {
        timer.cancel()
        state.withLock { $0.isClosed = true }
        session.close()
    }

    /// Runs rounds as long as ``start()`` was called since the last round began.
    private func runRounds(_ session: any StoreSession) async {
        while beginsRound() {
            // Readiness and metrics report failures of the store. The next round, at the latest by the timer, tries
            // again.
            try? await run(session)
        }
    }

    /// Whether another round begins now. Otherwise the work has ended.
    private func beginsRound() -> Bool {
        state.withLock { state in
            state.isRunning = state.isRequested && !state.isClosed
            state.isRequested = false
            return state.isRunning
        }
    }

    /// Runs one round: works until nothing is left to do, or another process does the work.
    ///
    /// - Throws: the first error of the store that concerns more than one user.
    public func run() async throws(StorageError) {
        try await session.run { session throws(StorageError) in try await self.run(session) }
    }

    private func run(_ session: any StoreSession) async throws(StorageError) {
        guard try await session.read(.openSeries) else { return }
        var progress = try await session.write(.continueSeries(nil, upTo: nil))
        while let next = progress.next, progress.isRecorded, !state.withLock({ $0.isClosed }) {
            let page = try await session.read(.exposures(after: next.after, limit: batch))
            let changes = page.map(\.exposure).filter { next.experimentIDs.contains($0.experimentID) }
                .map { UserChange.settleSeries(of: $0.userID, in: $0.experimentID) }
            if !changes.isEmpty { try await Self.write(changes, session) }
            progress = try await session.write(.continueSeries(next, upTo: page.last?.number))
        }
    }

    /// Makes the changes of a step. An error that concerns one user, such as a damaged record, does not stop the work.
    private static func write(_ changes: [UserChange<Void>], _ session: any StoreSession) async throws(StorageError) {
        let results: [Result<Void, StorageError>] = await settled { done in session.write(changes, done) }
        for result in results {
            if case .failure(let error) = result, !error.concernsOneUser { throw error }
        }
    }
}
