import HTTPServer
import HoldfastCore
import Storage

/// Merges anonymous users into accounts, and updates what this process caches of both.
struct ProfileMerger: @unchecked Sendable {
    // Safe: the store is used on its event loop only.
    let store: any ProfileStore
    let services: Services

    /// Begins the work when the queued events of all users are stored, on the event loop of the request.
    func afterQueuedEvents(_ call: Call, _ work: @escaping @Sendable (ProfileMerger) -> Void) {
        services.events.afterWaiting {
            call.onEventLoop { work(self) }
        } ifOverloaded: {
            call.fail($0)
        }
    }

    /// - Parameter completion: called with an error without a pointer, as it is about stored data.
    func merge(
        _ merge: ProfileMerge, by author: Author,
        completion: @escaping @Sendable (Result<ProfileMergeResult, CoreError>) -> Void
    ) {
        store.merge(merge, by: author) { [services] result in
            switch result {
            case .success(let merged):
                services.knownExposures.forget([ErasureRules.hash(merge.anonymousID)])
                completion(.success(merged))
            case .failure(let error):
                var error = CoreError(error)
                error.pointer = nil
                completion(.failure(error))
            }
        }
    }

    /// Responds after merges: variations forced for a test may have moved.
    func refresh(
        after results: [Result<ProfileMergeResult, CoreError>], _ call: Call, respond: @escaping @Sendable () -> Void
    ) {
        guard results.contains(where: { (try? $0.get())?.changed == true }) else { return respond() }
        services.projects.refresh { refreshed in
            if case .failure(let error) = refreshed { return call.fail(error) }
            respond()
        }
    }
}
