import PostgreSQLTestSupport
import Storage
import StoragePostgreSQL
import Synchronization
import TestSupport
import Testing

@Suite("PostgreSQL")
struct PostgreSQLTests {}

extension PostgreSQLTests {
    @Suite("Contract")
    struct ContractTests {
        @Test(arguments: StoreContract.databases)
        func `Keeps the contract`(_ contract: StoreContract) async throws {
            await Turns.shared.begin()
            defer { Turns.shared.end() }
            let database = try TestDatabase()
            try await SessionPool.with {
                try await contract.run { options in
                    try PostgreSQLStore.make(in: database) {
                        $0.settings.rules = options.rules
                        $0.settings.clock = options.clock.wallClock
                        $0.settings.datafileHistory = options.datafileHistory
                        $0.settings.waitingBytes = options.waitingBytes
                    }
                }
            }
        }
    }
}

/// Keeps the cases from making all their databases at the same time: each takes connections, and on Citus processes.
private final class Turns: Sendable {
    static let shared = Turns()

    private let state = Mutex((free: 4, waiting: [CheckedContinuation<Void, Never>]()))

    func begin() async {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                guard state.free == 0 else {
                    state.free -= 1
                    return true
                }
                state.waiting.append(continuation)
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    func end() {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
            state.free += 1
            return nil
        }
        next?.resume()
    }
}

extension PostgreSQLStore {
    static func make(
        in database: TestDatabase, _ adjust: (inout PostgreSQLConfiguration) -> Void = { _ in }
    ) throws -> PostgreSQLStore {
        var configuration = PostgreSQLConfiguration(url: database.url)
        // On a slow machine nothing must be refused for lack of time.
        configuration.statementTimeout = 60
        configuration.settings.waitingSeconds = 60
        configuration.isPooled = database.isPooled
        adjust(&configuration)
        return try PostgreSQLStore(configuration)
    }
}
