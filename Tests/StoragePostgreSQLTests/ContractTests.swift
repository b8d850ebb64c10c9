import PostgreSQLTestSupport
import Storage
import StoragePostgreSQL
import TestSupport
import Testing

@Suite("PostgreSQL")
struct PostgreSQLTests {}

extension PostgreSQLTests {
    @Suite("Contract")
    struct ContractTests {
        @Test("Keeps the contract", arguments: StoreContract.all)
        func contract(_ contract: StoreContract) async throws {
            let database = try TestDatabase()
            try await SessionPool.with {
                try await contract.run { options in
                    try PostgreSQLStore.make(in: database) {
                        $0.settings.rules = options.rules
                        $0.settings.clock = options.clock.wallClock
                        $0.settings.datafileHistory = options.datafileHistory
                    }
                }
            }
        }
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
        adjust(&configuration)
        return try PostgreSQLStore(configuration)
    }
}
