import Dispatch
import Storage
import StorageSQLite

extension SQLiteStore {
    /// Records events that were received at a moment, by default now, and waits until they are durable.
    func record(
        _ events: [UserEvent], receivedAt: UInt64 = DispatchTime.now().uptimeNanoseconds
    ) async throws -> [EventOutcome] {
        let received = events.map { ReceivedEvent($0, receivedAt: receivedAt) }
        return try await withCheckedContinuation { continuation in
            record(received) { continuation.resume(returning: $0) }
        }.get()
    }
}
