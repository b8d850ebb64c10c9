import Bucketing
import Synchronization

/// Reads an ``InMemoryProfileStore``.
final class InMemoryProfileReader: ProfileReader {
    private let store: InMemoryProfileStore
    private var isClosed = false

    init(store: InMemoryProfileStore) {
        self.store = store
    }

    func beginBatch() {}

    func endBatch() {}

    func profile(of userID: Identifier, _ completion: @escaping (Result<ProfileRecord?, StorageError>) -> Void) {
        let now = store.clock()
        completion(read { $0[userID]?.visible(at: now) })
    }

    func profiles(
        after: Identifier?, limit: Int, _ completion: @escaping (Result<ProfilePage, StorageError>) -> Void
    ) {
        let now = store.clock()
        completion(
            read { profiles in
                let userIDs = profiles.keys.filter { userID in after.map { $0 < userID } ?? true }.sorted().prefix(limit)
                let visible = userIDs.compactMap { userID in
                    profiles[userID]?.visible(at: now).map { (userID: userID, profile: $0) }
                }
                return ProfilePage(profiles: visible, end: userIDs.count < limit ? nil : userIDs.last)
            }
        )
    }

    var cacheStatistics: CacheStatistics { CacheStatistics() }

    func close() {
        isClosed = true
    }

    private func read<Value>(
        _ body: ([Identifier: ProfileRecord]) -> sending Value
    ) -> Result<Value, StorageError> {
        store.state.withLock { state in
            isClosed || state.isClosed ? .failure(.closed) : .success(body(state.profiles))
        }
    }
}
