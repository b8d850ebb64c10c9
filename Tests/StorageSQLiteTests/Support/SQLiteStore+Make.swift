import Bucketing
import Dispatch
import Storage
import TestSupport

@testable import StorageSQLite

extension SQLiteStore {
    /// A store in a directory, whose retention waits to be told.
    static func make(
        in directory: TemporaryDirectory, rules: ProfileRules = ProfileRules(), clock: ManualClock? = nil,
        _ adjust: (inout SQLiteConfiguration) -> Void = { _ in }
    ) throws -> SQLiteStore {
        var configuration = SQLiteConfiguration(path: directory.file("holdfast.db"))
        configuration.settings.rules = rules
        configuration.settings.retentionInterval = 3_600
        if let clock { configuration.settings.clock = clock.wallClock }
        adjust(&configuration)
        return try SQLiteStore(configuration)
    }

    /// Runs statements on the writer's own connection, outside a transaction of the store's making.
    func configureWriter(_ sql: String) async throws {
        try await withCheckedContinuation { continuation in
            writer.submit({ try $0.connection.execute(sql) }, completion: { continuation.resume(returning: $0) })
        }.get()
    }

    /// Keeps the writer busy, in a transaction of its own, until the returned semaphore is signalled.
    func holdWriter() async -> DispatchSemaphore {
        let release = DispatchSemaphore(value: 0)
        await withCheckedContinuation { started in
            writer.submit(
                { _ in
                    started.resume()
                    release.wait()
                }, completion: { _ in })
        }
        return release
    }
}

extension SQLiteStore {
    /// A session for the calling thread, with its connection open. Its lookups complete before the call returns.
    func makeReader() throws(StorageError) -> sending SQLiteSession {
        let session = try makeSQLiteSession(on: CallingThread())
        try session.prepareLookups()
        return session
    }
}

/// Runs work at once, on whatever thread submits it.
private final class CallingThread: StoreExecutor {
    func submit(_ work: @escaping @Sendable () -> Void) -> Bool {
        work()
        return true
    }
}

extension StoreMetrics {
    var userFilterBytes: UInt64 { value("holdfast_store_user_filter_bytes") }
    var logBytes: UInt64 { value("holdfast_store_log_bytes") }

    private func value(_ name: String) -> UInt64 {
        own.first { $0.name == name }?.value ?? 0
    }
}

extension [ProfileChange] {
    /// Changes that each make the empty profile of another user.
    static func newUsers(_ count: Int) -> [ProfileChange] {
        (0..<count).map { ProfileChange(userID: Identifier("u\($0)"), operation: .replace([:])) }
    }
}
