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
        configuration.rules = rules
        configuration.retentionInterval = 3_600
        if let clock { configuration.clock = clock.wallClock }
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

