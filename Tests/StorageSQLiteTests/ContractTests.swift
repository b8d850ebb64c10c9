import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Contract")
    struct ContractTests {
        @Test(arguments: StoreContract.databases)
        func `Keeps the contract`(_ contract: StoreContract) async throws {
            let directory = try TemporaryDirectory()
            try await contract.run { options in
                try SQLiteStore.make(in: directory, rules: options.rules, clock: options.clock) {
                    $0.settings.datafileHistory = options.datafileHistory
                    $0.settings.waitingBytes = options.waitingBytes
                }
            }
            #expect(try directory.contents().keys.sorted() == ["holdfast.db"])
        }
    }
}
