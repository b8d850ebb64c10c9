import Bucketing
import Chronology
import Foundation
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Commits, retention and copies")
    struct OperationTests {
        let directory: TemporaryDirectory
        var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        @Test
        func `Changes that wait together share a commit`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let release = await store.holdWriter()
            let submitted = store.submitTogether(.newUsers(500))
            #expect(store.metrics().waitingChanges == 500)
            release.signal()
            #expect(await submitted.results().allSatisfy { (try? $0.get()) != nil })
            #expect(store.metrics().commits == 1)
            #expect(store.metrics().changes == 500)
        }

        @Test
        func `A batch is bounded`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.batchLimit = 100 }
            defer { store.close() }
            let release = await store.holdWriter()
            let submitted = store.submitTogether(.newUsers(500))
            #expect(store.metrics().waitingChanges == 500)
            release.signal()
            _ = await submitted.results()
            #expect(store.metrics().commits == 5)
        }

        @Test
        func `A commit larger than the buffer for one write to the log is complete, and visible to other connections`()
            async throws
        {
            let store = try SQLiteStore.make(in: directory) { $0.batchLimit = 2_000 }
            let reader = try store.makeReader()
            let release = await store.holdWriter()
            let map = ExperimentBucketMap(
                Dictionary(uniqueKeysWithValues: (0..<50).map { (Identifier("e\($0)"), Identifier("v\($0)")) }))
            let submitted = store.submitTogether(
                (0..<2_000).map { .init(userID: Identifier("u\($0)"), operation: .replace(map)) })
            release.signal()
            for result in await submitted.results() { _ = try result.get() }
            #expect(store.metrics().logBytes > 1024 * 1024)
            #expect(try reader.variations(of: "u1999")?.count == 50)
            #expect(try RawDatabase(path).value("PRAGMA integrity_check") == "ok")
            reader.close()
            store.close()
            #expect(try RawDatabase(path).value("SELECT count(*) FROM profiles") == "2000")
        }

        @Test
        func `A change without effect is not committed`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            let commits = store.metrics().commits
            try await store.apply(.save(["e": "v"], onConflict: .replace), to: "user")
            #expect(store.metrics().commits == commits)
        }

        @Test
        func `Closing commits what waits`() async throws {
            let store = try SQLiteStore.make(in: directory)
            let submitted = store.submitTogether(.newUsers(300))
            store.close()
            #expect(await submitted.results().allSatisfy { (try? $0.get()) != nil })
            #expect(try RawDatabase(path).value("SELECT count(*) FROM profiles") == "300")
        }

        @Test
        func `Retention deletes what has expired, in small batches, and counts it`() async throws {
            let clock = ManualClock()
            let rules = ProfileRules(assignmentTTL: .seconds(60))
            let store = try SQLiteStore.make(in: directory, rules: rules, clock: clock) {
                $0.settings.retentionInterval = 0.02
                $0.settings.retentionBatch = 7
            }
            defer { store.close() }
            for number in 0..<40 {
                try await store.apply(.replace(["e1": "v", "e2": "w"]), to: Identifier("u\(number)"))
            }
            try await store.apply(.override(experimentID: "e1", variationID: "forced"), to: "u0")
            // A damaged row does not keep the others from being deleted.
            try await store.apply(.replace(["e": "v"]), to: "damaged")
            try RawDatabase(path).execute("UPDATE profiles SET record = x'ff' WHERE user_id = 'damaged'")
            clock.advance(by: .seconds(60))
            while store.metrics().expiredAssignments < 79 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(store.metrics().expiredAssignments == 79)
            #expect(store.metrics().profiles == 2)
            #expect(try RawDatabase(path).value("SELECT group_concat(user_id) FROM profiles") == "damaged,u0")
        }

        @Test
        func `Retention keeps what is beneath an override that has expired, and an override over what has`()
            async throws
        {
            let clock = ManualClock()
            let store = try SQLiteStore.make(
                in: directory, rules: ProfileRules(assignmentTTL: .seconds(60)), clock: clock
            ) {
                $0.settings.retentionInterval = 0.02
                $0.settings.retentionBatch = 1
            }
            defer { store.close() }
            let database = try RawDatabase(path)
            func awaitRecord(_ record: ProfileRecord, of user: String) async throws {
                let hex = record.bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined()
                while try database.value("SELECT hex(record) FROM profiles WHERE user_id = '\(user)'") != hex {
                    try await Task.sleep(for: .milliseconds(1))
                }
            }
            var beneath: ProfileRecord?
            for (user, lifetime) in [("short", 30_000 as TimeSpan), ("long", 90_000)] {
                beneath = try await store.apply(.replace(["e": "v"]), to: Identifier(user)).profile
                try await store.apply(
                    .override(experimentID: "e", variationID: "forced", expiresAt: clock.now + lifetime),
                    to: Identifier(user))
            }
            let override = Assignment(
                variationID: "forced", source: .override, assignedAt: clock.now, updatedAt: clock.now,
                expiresAt: clock.now + 90_000)
            clock.advance(by: .seconds(30))
            try await awaitRecord(try #require(beneath), of: "short")
            clock.advance(by: .seconds(30))
            try await awaitRecord(ProfileRecord(["e": override]), of: "long")
            clock.advance(by: .seconds(30))
            while store.metrics().profiles > 0 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(try database.value("SELECT count(*) FROM profiles") == "0")
        }

        @Test
        func `A store that leaves retention to others deletes nothing in the background`() async throws {
            let clock = ManualClock()
            let store = try SQLiteStore.make(
                in: directory, rules: ProfileRules(assignmentTTL: .seconds(60)), clock: clock
            ) {
                $0.settings.retentionInterval = 0.001
                $0.settings.deletesOld = false
            }
            try await store.apply(.replace(["e": "v"]), to: "expired")
            clock.advance(by: .seconds(60))
            for number in 0..<20 { try await store.apply(.replace(["e": "v"]), to: Identifier("u\(number)")) }
            store.close()
            #expect(try RawDatabase(path).value("SELECT count(*) FROM profiles") == "21")
        }

        @Test
        func `A clock that is set back by more than a day restores nothing that was deleted, and deletes nothing`()
            async throws
        {
            let clock = ManualClock()
            let store = try SQLiteStore.make(
                in: directory, rules: ProfileRules(assignmentTTL: .seconds(60)), clock: clock
            ) {
                $0.settings.retentionInterval = 0.02
            }
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "early")
            clock.advance(by: .seconds(50))
            try await store.apply(.replace(["e": "v"]), to: "late")
            clock.advance(by: .seconds(20))
            while store.metrics().expiredAssignments != 1 { try await Task.sleep(for: .milliseconds(1)) }
            clock.advance(by: .seconds(-100_000))
            #expect(try reader.profile(of: "early") == nil)
            #expect(try reader.variations(of: "late") == ["e": "v"])
            // Renewed as of the present time, and assigned when it was.
            try await store.apply(.replace(["e": "v"]), to: "late")
            let renewed = try #require(try reader.profile(of: "late")?["e"])
            #expect(renewed.assignedAt - renewed.updatedAt == 99_980_000)
            #expect(renewed.expiresAt == clock.now + 60_000)
            clock.advance(by: .seconds(61))
            #expect(try reader.profile(of: "late") == nil)
        }

        @Test
        func `A backup made under load is complete and consistent`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.batchLimit = 50 }
            defer { store.close() }
            for number in 0..<50 {
                try await store.apply(.replace(["e": "v"]), to: Identifier("before\(number)"))
            }
            let submitted = store.submitTogether(
                (0..<5_000).map { .init(userID: Identifier("u\($0)"), operation: .replace(["e": "v"])) })
            let target = try TemporaryDirectory()
            try DatabaseMaintenance.backUp(path: path, to: target.file("holdfast.db"))
            #expect(await submitted.results().allSatisfy { (try? $0.get()) != nil })
            #expect(try target.contents().keys.sorted() == ["holdfast.db"])
            #expect(try RawDatabase(target.file("holdfast.db")).value("PRAGMA integrity_check") == "ok")
            let copy = try SQLiteStore.make(in: target)
            defer { copy.close() }
            let reader = try copy.makeReader()
            defer { reader.close() }
            let profiles = try reader.page(after: nil, limit: 100_000).count
            #expect(profiles >= 50)
            #expect(profiles == copy.metrics().profiles)
        }

        @Test
        func `A backup does not replace a file`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let target = directory.file("copy.db")
            try Data("precious".utf8).write(to: URL(fileURLWithPath: target))
            #expect(throws: DatabaseError.self) { try DatabaseMaintenance.backUp(path: path, to: target) }
            #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == Data("precious".utf8))
            #expect(throws: DatabaseError.self) {
                try DatabaseMaintenance.backUp(path: directory.file("none.db"), to: directory.file("other.db"))
            }
        }

        @Test
        func `Only a Holdfast database is backed up`() throws {
            let foreign = directory.file("foreign.db")
            try RawDatabase(foreign).execute("PRAGMA application_id = 5; CREATE TABLE t (a)")
            #expect(throws: DatabaseError.self) {
                try DatabaseMaintenance.backUp(path: foreign, to: directory.file("copy.db"))
            }
        }

        private func write(rounds: Int, to store: SQLiteStore) async throws {
            for round in 0..<rounds {
                let changes = (0..<500).map { number in
                    let map: ExperimentBucketMap = ["e": Identifier("v\(round)")]
                    return ProfileChange(userID: Identifier("u\(number * 7)"), operation: .replace(map))
                }
                for result in await store.applyTogether(changes) { _ = try result.get() }
            }
        }

        @Test
        func `The log restarts again and again while readers read`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.checkpointPages = 50 }
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            for _ in 0..<100 {
                try await write(rounds: 1, to: store)
                _ = try reader.profile(of: "u0")
            }
            #expect(store.metrics().logBytes < 2 << 20)
        }

        @Test(arguments: [true, false])
        func `Pages of the log that the disk may have lost are copied again, and only then`(forgets: Bool) throws {
            let connection = try Connection(path: path, access: .create, lockTimeout: 1)
            try connection.execute(
                """
                PRAGMA journal_mode = WAL;
                PRAGMA wal_autocheckpoint = 0;
                CREATE TABLE t (a);
                WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n LIMIT 50000) INSERT INTO t SELECT a FROM n;
                """)
            let copied = try connection.checkpoint(.passive)
            #expect(copied.copied == copied.pages && copied.pages > 50)
            // The disk loses all pages but the first.
            let file = try FileHandle(forUpdating: URL(fileURLWithPath: path))
            let size = try file.seekToEnd()
            try file.seek(toOffset: 4_096)
            try file.write(contentsOf: Data(count: Int(size) - 4_096))
            if forgets { try connection.forgetCopiedPages() }
            _ = try connection.checkpoint(.restart)
            // Without the log.
            let copy = directory.file("copy.db")
            try FileManager.default.copyItem(atPath: path, toPath: copy)
            let database = try RawDatabase(copy)
            #expect(try (database.value("PRAGMA integrity_check") == "ok") == forgets)
            try file.close()
        }

        @Test
        func `A long-running reader pins the log and delays nobody`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.checkpointPages = 50 }
            defer { store.close() }
            try await write(rounds: 1, to: store)
            let other = try RawDatabase(path)
            try other.execute("BEGIN")
            let before = try other.value("SELECT commits FROM counters")
            try await write(rounds: 50, to: store)
            #expect(try other.value("SELECT commits FROM counters") == before)
            let kept = store.metrics().logBytes
            try other.execute("COMMIT")
            try await write(rounds: 200, to: store)
            #expect(store.metrics().logBytes < 3 * kept)
        }
    }
}
