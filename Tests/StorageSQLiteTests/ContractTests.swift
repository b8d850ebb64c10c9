import TestSupport
import Testing

@testable import StorageSQLite

@Suite("SQLite store: contract")
struct ContractTests {
    @Test("Keeps the contract", arguments: ProfileStoreContract.cases)
    func contract(_ contract: ProfileStoreContract) async throws {
        let directory = try TemporaryDirectory()
        try await contract.run { rules, clock in
            try SQLiteStore.make(in: directory, rules: rules) { $0.clock = clock }
        }
        #expect(try directory.contents().keys.sorted() == ["holdfast.db"])
    }
}
