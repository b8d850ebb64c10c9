import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// Merges anonymous users into accounts, and updates what this process caches of both.
struct ProfileMerger {
    let store: any StoreSession
    let services: Services

    /// Waits until the queued events of all users are stored.
    func waitForQueuedEvents() async throws(StorageError) {
        try await services.events.waitForEarlier()
    }

    /// - Throws: an error without a pointer, as it is about stored data.
    func merge(_ merge: ProfileMerge, by author: Author) async throws(CoreError) -> ProfileMergeResult {
        do throws(StorageError) {
            let merged = try await store.write(.merge(merge, by: author))
            services.knownExposures.forget([ErasureRules.hash(merge.anonymousID)])
            return merged
        } catch {
            var error = CoreError(error)
            error.pointer = nil
            throw error
        }
    }

    /// Follows merges: variations forced for a test may have moved.
    func refresh() async throws(StorageError) {
        try await services.projects.refresh()
    }
}
