import Storage
import StorageSQLite

extension SQLiteStore {
    /// Records events and waits until they are durable.
    func record(_ events: [UserEvent]) async throws -> [EventOutcome] {
        try await withCheckedContinuation { continuation in
            record(events) { continuation.resume(returning: $0) }
        }.get()
    }
}
