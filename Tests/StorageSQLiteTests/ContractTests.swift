import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Contract")
    struct ContractTests {
        @Test("Keeps the contract of profiles", arguments: StoreContract.profiles)
        func profiles(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of merging", arguments: StoreContract.merging)
        func merging(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of attributes", arguments: StoreContract.attributes)
        func attributes(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of sticky documents", arguments: StoreContract.stickyDocuments)
        func stickyDocuments(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of events", arguments: StoreContract.events)
        func events(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of projects", arguments: StoreContract.projects)
        func projects(_ contract: StoreContract) async throws { try await run(contract) }

        @Test("Keeps the contract of the audit log", arguments: StoreContract.audit)
        func audit(_ contract: StoreContract) async throws { try await run(contract) }

        private func run(_ contract: StoreContract) async throws {
            let directory = try TemporaryDirectory()
            try await contract.run { options in
                try SQLiteStore.make(in: directory, rules: options.rules, clock: options.clock) {
                    $0.datafileHistory = options.datafileHistory
                }
            }
            #expect(try directory.contents().keys.sorted() == ["holdfast.db"])
        }
    }
}
