import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    private static let admin = Author(name: "on-call", requestID: "request-1")

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes, as: UTF8.self)
    }

    public static let audit = [
        StoreContract("An admin's change of a profile is recorded with what was before and after") {
            context async throws in
            let store = context.store
            try await store.apply(.replace(["e": "v"]), to: "user")
            try await store.administer(.override(experimentID: "e", variationID: "w"), of: "user", by: admin)
            try await store.administer(.remove(experimentID: "e"), of: "user", by: admin)
            let entries = try await store.audit()
            #expect(entries.map(\.action) == ["assignment.remove", "override.set"])
            #expect(
                entries.map { $0.before.map(text) } == [
                    #"{"variation_id":"w","source":"override"}"#, #"{"variation_id":"v","source":"saved"}"#,
                ])
            #expect(
                entries.map { $0.after.map(text) } == [
                    #"{"variation_id":"v","source":"saved"}"#, #"{"variation_id":"w","source":"override"}"#,
                ])
            #expect(entries.allSatisfy { $0.author == admin && $0.userID == "user" && $0.target == "e" })
            #expect(entries.allSatisfy { $0.recordedAt == context.clock.now })
            #expect(store.metrics().auditEntries == 2)
        },
        StoreContract("Reason and expiry of an override are recorded") { context async throws in
            let operation = ProfileChange.Operation.override(
                experimentID: "e", variationID: "w", reason: "ticket 7", expiresAt: context.clock.now + 1_000)
            try await context.store.administer(operation, of: "user", by: admin)
            let end = (context.clock.now + 1_000).rfc3339
            #expect(
                try await context.store.audit().first?.after.map(text)
                    == #"{"variation_id":"w","source":"override","reason":"ticket 7","expires_at":"\#(end)"}"#)
        },
        StoreContract("A datafile and a forced variation are recorded, but not the content of the datafile") {
            context async throws in
            let store = context.store
            for revision in ["1", "2"] {
                let content = "{\"revision\":\"\(revision)\"}"
                #expect(try await store.activate(content, revision: revision, by: admin) != nil)
            }
            for key: Identifier? in ["a", "b", nil] { try await store.force(key, by: admin) }
            let entries = try await store.audit()
            #expect(
                entries.map(\.action) == [
                    "forced_variation.remove", "forced_variation.set", "forced_variation.set", "datafile.put",
                    "datafile.put",
                ])
            #expect(
                entries.map { $0.before.map(text) } == [
                    #"{"variation_key":"b","sdk_key":"key"}"#, #"{"variation_key":"a","sdk_key":"key"}"#, nil,
                    #"{"version":1,"revision":"1"}"#, nil,
                ])
            #expect(
                entries.map { $0.after.map(text) } == [
                    nil, #"{"variation_key":"b","sdk_key":"key"}"#, #"{"variation_key":"a","sdk_key":"key"}"#,
                    #"{"version":2,"revision":"2"}"#, #"{"version":1,"revision":"1"}"#,
                ])
        },
        StoreContract("What app servers save, and what changes nothing, is not recorded") { context async throws in
            let store = context.store
            try await store.apply(.replace(["e": "v"]), to: "user")
            try await store.apply(.assign([.init(experimentID: "f", variationID: "w")]), to: "user")
            try await store.administer(.remove(experimentID: "other"), of: "user", by: admin)
            try await store.administer(.erase, of: "nobody", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "user", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "user", by: admin)
            try await store.force(nil, by: admin)
            #expect(try await store.audit().map(\.action) == ["override.set"])
        },
        StoreContract("Erasing a user leaves nothing of the user in the audit log") { context async throws in
            let store = context.store
            try await store.administer(
                .override(experimentID: "e", variationID: "secret-w"), of: "secret-ada", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "bob", by: admin)
            try await store.administer(.erase, of: "secret-ada", by: admin)
            let entries = try await store.audit()
            #expect(entries.map(\.action) == ["profile.erase", "override.set", "override.set"])
            #expect(entries.map(\.userID) == [nil, "bob", nil])
            #expect(entries.map { $0.after == nil } == [true, false, true])
            #expect(
                entries.allSatisfy { !"\($0.target)\(text($0.before ?? []))\(text($0.after ?? []))".contains("secret") }
            )
            let records = try store.read(.records(of: "bob"))
            #expect(records.otherRecords.auditEntries == .init(count: 1, newest: entries[1].id))
            #expect(records.otherRecords.goalEvents == .init())
            // Erasing once more finds nothing.
            try await store.administer(.erase, of: "secret-ada", by: admin)
            #expect(try await store.audit().count == 3)
        },
        StoreContract("Erasing what no profile shows is recorded, too") { context async throws in
            try await context.store.force("a", by: admin)
            try await context.store.administer(.erase, of: "user", by: admin)
            #expect(try await context.store.audit().map(\.action) == ["profile.erase", "forced_variation.set"])
        },
        StoreContract("Details of an audit entry are bounded") { context async throws in
            let note = AuditNote(
                .experimentPut, of: String(repeating: "ä", count: 5_000),
                before: .string(String(repeating: "b", count: 4_094)),
                after: .string(String(repeating: "c", count: 4_095)))
            try await context.store.record(note, by: admin)
            let entry = try #require(try await context.store.audit().first)
            #expect(entry.target.utf8.count == 1_024)
            #expect(entry.before?.count == 4_096)
            #expect(entry.after.map(text) == #"{"omitted_bytes":4097}"#)
        },
        StoreContract("Audit entries are found by each of their members, and page by page") { context async throws in
            let store = context.store
            for number in 0..<10 {
                let author = Author(name: number % 2 == 0 ? "even" : "odd")
                let target = "t\(number % 5)"
                let note = AuditNote(
                    number < 5 ? .experimentPut : .experimentDelete, of: target, userID: Identifier("u\(number)"))
                try await store.record(note, by: author)
                context.clock.advance(by: .seconds(1))
            }
            let start = context.clock.now - .seconds(10)
            func found(_ adjust: (inout AuditQuery) -> Void) async throws -> [Int64] {
                try await store.audit(adjust).map { $0.id - 1 }
            }
            #expect(try await found { $0.author = "odd" } == [9, 7, 5, 3, 1])
            #expect(try await found { $0.action = .experimentPut } == [4, 3, 2, 1, 0])
            #expect(try await found { $0.target = "t3" } == [8, 3])
            #expect(try await found { $0.userID = "u6" } == [6])
            #expect(try await found { $0.since = start + 7_000 } == [9, 8, 7])
            #expect(try await found { $0.until = start + 2_000 } == [1, 0])
            #expect(try await found { $0.limit = 3 } == [9, 8, 7])
            #expect(try await found { ($0.after, $0.limit) = (8, 3) } == [6, 5, 4])
            #expect(try await found { ($0.author, $0.target) = ("odd", "t0") } == [5])
        },
    ]
}
