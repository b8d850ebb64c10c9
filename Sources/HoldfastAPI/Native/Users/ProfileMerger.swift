import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// Merges anonymous users into accounts, and updates the caches of this process.
struct ProfileMerger {
    let store: any StoreSession
    let services: Services

    /// Waits until the queued events of all users are stored. A merge moves only stored events.
    func waitForQueuedEvents() async throws(StorageError) {
        try await services.events.waitForEarlier()
    }

    /// Merges an anonymous user into an account.
    ///
    /// - Throws: an error without a pointer, because it is about stored data and not about the body.
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

    /// Reads the catalog after merges, because forced variations may have ended.
    func refresh() async throws(StorageError) {
        try await services.projects.refresh()
    }
}
