import Bucketing
import Synchronization

/// A store that forgets everything when the process ends: for tests and for trying things out.
///
/// Changes are applied, and their completions called, before `submit` returns.
public final class InMemoryProfileStore: ProfileStore {
    struct State {
        var profiles: [Identifier: ProfileRecord] = [:]
        var statistics = StoreStatistics()
        var changesSinceSweep = 0
        var isClosed = false
    }

    let state = Mutex(State())
    let clock: WallClock
    private let rules: ProfileRules

    public init(rules: ProfileRules = ProfileRules(), clock: @escaping WallClock = systemWallClock) {
        self.rules = rules
        self.clock = clock
    }

    public func makeReader() throws(StorageError) -> sending any ProfileReader {
        guard !state.withLock({ $0.isClosed }) else { throw .closed }
        return InMemoryProfileReader(store: self)
    }

    public func submit(
        _ change: ProfileChange, completion: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        completion(state.withLock { apply(change, to: &$0) })
    }

    public func submit(
        _ changes: [ProfileChange],
        completion: @escaping @Sendable ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        completion(state.withLock { state in changes.map { apply($0, to: &state) } })
    }

    public func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        let isClosed = state.withLock { $0.isClosed }
        completion(isClosed ? .failure(.closed) : .success(()))
    }

    public func statistics() -> StoreStatistics {
        state.withLock { $0.statistics }
    }

    public func close() {
        state.withLock { $0.isClosed = true }
    }

    private func apply(_ change: ProfileChange, to state: inout State) -> Result<ProfileChangeResult, StorageError> {
        let result = result(of: change, in: &state)
        if case .failure = result { state.statistics.failedChanges += 1 }
        return result
    }

    private func result(
        of change: ProfileChange, in state: inout State
    ) -> Result<ProfileChangeResult, StorageError> {
        guard !state.isClosed else { return .failure(.closed) }
        let now = clock()
        let stored = state.profiles[change.userID]
        let outcome: ProfileOutcome
        do {
            outcome = try rules.apply(change, to: stored, at: now)
        } catch {
            return .failure(error)
        }
        switch outcome.effect {
        case .none: return .success(outcome.result)
        case .put(let record): state.set(record, for: change.userID)
        case .delete: state.set(nil, for: change.userID)
        }
        state.statistics.changes += 1
        state.sweepIfDue(at: now)
        return .success(outcome.result)
    }
}

extension InMemoryProfileStore.State {
    fileprivate mutating func set(_ record: ProfileRecord?, for userID: Identifier) {
        let former = profiles.updateOrRemove(record, for: userID)
        statistics.profiles += (record == nil ? 0 : 1) - (former == nil ? 0 : 1)
        statistics.assignments += (record?.count ?? 0) - (former?.count ?? 0)
    }

    /// Deletes what has expired once in as many changes as there are profiles, so that its cost is spread evenly.
    fileprivate mutating func sweepIfDue(at now: Timestamp) {
        changesSinceSweep += 1
        guard changesSinceSweep >= max(1_000, profiles.count) else { return }
        changesSinceSweep = 0
        let expired = profiles.filter { $0.value.earliestExpiry.map { $0 <= now } ?? false }
        for (userID, record) in expired {
            let visible = record.visible(at: now)
            statistics.expiredAssignments += UInt64(record.count - (visible?.count ?? 0))
            set(visible, for: userID)
        }
    }
}

extension Dictionary {
    fileprivate mutating func updateOrRemove(_ value: Value?, for key: Key) -> Value? {
        if let value {
            return updateValue(value, forKey: key)
        }
        return removeValue(forKey: key)
    }
}
