import Bucketing
import Chronology
import Dispatch
import PostgreSQLTestSupport
import Storage
import Synchronization
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    /// Several stores on one database, as servers on several hosts have it.
    @Suite("Shared database")
    struct SharedDatabaseTests {
        private func withStores(
            _ count: Int = 2, _ adjust: (inout PostgreSQLConfiguration) -> Void = { _ in },
            _ body: (TestDatabase, [PostgreSQLStore]) async throws -> Void
        ) async throws {
            let database = try TestDatabase()
            let stores = try (0..<count).map { _ in try PostgreSQLStore.make(in: database, adjust) }
            try await SessionPool.with { try await body(database, stores) }
            for store in stores { store.close() }
        }

        @Test(arguments: [false, true])
        func `Saves of one user by several stores are all kept`(_ isPooled: Bool) async throws {
            try await withStores(3) {
                if isPooled { $0.isPooled = true }
            } _: { _, stores in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for (index, store) in stores.enumerated() {
                        group.addTask {
                            for number in 0..<40 {
                                let changes = (0..<5).map { part in
                                    let experiment = Identifier("s\(index)n\(number)p\(part)")
                                    return ProfileChange(
                                        userID: part < 4 ? "hot" : Identifier("u\(number % 7)"),
                                        operation: .save([experiment: "v"], onConflict: .replace))
                                }
                                for result in await store.applyTogether(changes) { _ = try result.get() }
                            }
                        }
                    }
                    try await group.waitForAll()
                }
                let reader = try stores[0].makeReader()
                defer { reader.close() }
                #expect(try reader.profile(of: "hot")?.count == 3 * 40 * 4)
                #expect(
                    try (0..<7).reduce(0) { try $0 + (reader.profile(of: Identifier("u\($1)"))?.count ?? 0) } == 120)
            }
        }

        @Test
        func `Who follows while several stores write misses nothing and sees nothing twice`() async throws {
            try await withStores(4) { _, stores in
                let writing = Writing()
                var followers: [FeedModel] = [FeedModel()]
                try await withThrowingTaskGroup(of: FeedModel?.self) { group in
                    for (index, store) in stores.dropLast().enumerated() {
                        group.addTask {
                            defer { writing.left.subtract(1, ordering: .sequentiallyConsistent) }
                            for number in 0..<40 { try await Self.change(store, index, number) }
                            return nil
                        }
                    }
                    group.addTask {
                        var follower = FeedModel()
                        while writing.left.load(ordering: .sequentiallyConsistent) > 0 {
                            try follower.follow(stores[3])
                        }
                        return follower
                    }
                    for try await follower in group { if let follower { followers.append(follower) } }
                }
                #expect(followers.count == 2)
                for var follower in followers {
                    try follower.follow(stores[3])
                    try follower.expect(equals: stores[3])
                }
            }
        }

        private final class Writing: Sendable {
            let left = Atomic(3)
        }

        private static func change(_ store: PostgreSQLStore, _ index: Int, _ number: Int) async throws {
            let changes = (0..<6).map { part in
                ProfileChange(
                    userID: part < 2 ? "hot" : Identifier("u\(Int.random(in: 0..<30))"),
                    operation: .save(["e": Identifier("s\(index)n\(number)")], onConflict: .replace))
            }
            for result in await store.applyTogether(changes) { _ = try result.get() }
            let user = Identifier("u\(number % 30)")
            if number.isMultiple(of: 10) { try await store.apply(.erase, to: user) }
            if number.isMultiple(of: 7) {
                try await store.merge("hot", into: user)
                _ = try await store.record([StoreContract.exposure(user)])
            }
        }

        @Test
        func `What one server stores while another tracks, fills and drops series counts once`() async throws {
            let count = SeriesDefinition(.sum(.init("g", .count), cap: nil))
            let funnel = SeriesDefinition(.funnel(["g", "h"]))
            try await withStores(3) { _, stores in
                let users = (0..<10).map { Identifier("u\($0)") }
                _ = try await stores[0].record(users.map { StoreContract.exposure($0) })
                let rounds = 60
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for (index, store) in stores.prefix(2).enumerated() {
                        group.addTask {
                            for round in 0..<rounds {
                                let events = users.shuffled().prefix(4).map {
                                    StoreContract.goal($0, at: .milliseconds(Int64(2 * round + index)))
                                }
                                _ = try await store.record(events)
                            }
                        }
                    }
                    group.addTask {
                        for round in 0..<8 {
                            let series = round.isMultiple(of: 2) ? [funnel] : [count, funnel]
                            _ = try await stores[2].activate("\(round)", sdkKey: "sdk", series: ["e": series])
                            for store in stores.shuffled() {
                                let filler = try SeriesFiller(store, batch: 3)
                                try await filler.run()
                                filler.close()
                            }
                        }
                    }
                    try await group.waitForAll()
                }
                let filler = try SeriesFiller(stores[0])
                defer { filler.close() }
                try await filler.run()
                let series = try stores[0].read(StoreQuery.series(experimentID: "e"))
                #expect(series.count == 2 && series.allSatisfy { $0.state == .filled })
                for series in series {
                    let tally = try stores[1].tally(experimentID: "e", goal: series.names[0])
                    let found = tally.variations.reduce(GoalTally()) { $0 + $1.goal }
                    #expect(found.events == (series.definition == count ? 2 * 4 * rounds : users.count))
                    #expect(found.converted == users.count)
                }
            }
        }

        @Test(arguments: [1, 2, 4])
        func `Changes of users around one of what all share are all made, in one batch`(_ connections: Int) async throws
        {
            try await withStores(1) {
                $0.connectionsPerSession = connections
            } _: { _, stores in
                let session = try BackgroundSession(stores[0], label: "test")
                defer { session.close() }
                let (stream, continuation) = AsyncStream<Bool>.makeStream()
                session.run { session in
                    session.beginBatch()
                    for number in 0..<12 {
                        let user = Identifier("u\(number % 3)")
                        let change = ProfileChange(
                            userID: user, operation: .save([Identifier("e\(number)"): "v"], onConflict: .replace))
                        session.submit(change, by: nil) { continuation.yield((try? $0.get()) != nil) }
                        guard number % 4 == 1 else { continue }
                        let note = AuditNote(.segmentDelete, of: "s\(number)")
                        session.write(.record(note, by: .processUser)) { continuation.yield((try? $0.get()) != nil) }
                    }
                    session.endBatch()
                }
                var outcomes: [Bool] = []
                for await outcome in stream {
                    outcomes.append(outcome)
                    if outcomes.count == 15 { break }
                }
                #expect(outcomes.allSatisfy { $0 })
                let reader = try stores[0].makeReader()
                defer { reader.close() }
                for user: Identifier in ["u0", "u1", "u2"] { #expect(try reader.profile(of: user)?.count == 4) }
            }
        }

        @Test
        func `Of proposals of several stores for one user one is kept, and all learn it`() async throws {
            try await withStores(3) { _, stores in
                for round in 0..<20 {
                    let userID = Identifier("u\(round)")
                    let kept = try await withThrowingTaskGroup(of: Identifier?.self) { group in
                        for index in stores.indices {
                            group.addTask {
                                let proposal = ProfileChange.Candidate(
                                    experimentID: "e", variationID: Identifier("v\(index)"))
                                return try await stores[index].apply(.assign([proposal]), to: userID).profile?
                                    .variationID(for: "e")
                            }
                        }
                        return try await group.reduce(into: Set<Identifier?>()) { $0.insert($1) }
                    }
                    #expect(kept.count == 1 && !kept.contains(nil))
                }
            }
        }

        @Test
        func `No assignment is stored after a newer datafile is acknowledged, unless it was decided with that`()
            async throws
        {
            try await withStores { _, stores in
                var newest: Int64 = 0
                for round in 0..<15 {
                    let version = newest
                    async let activated = stores[0].activate("\(round)")
                    let results = await stores[1].applyTogether(
                        (0..<20).map { number in
                            ProfileChange(
                                userID: Identifier("r\(round)n\(number)"),
                                operation: .assign(
                                    [.init(experimentID: "e", variationID: "v")], decidedWith: version))
                        })
                    for result in results {
                        if case .failure(let error) = result { #expect(error == .staleDatafile) }
                    }
                    newest = try #require(try await activated).version
                    await #expect(throws: StorageError.staleDatafile) {
                        try await stores[1].apply(
                            .assign([.init(experimentID: "e", variationID: "v")], decidedWith: version), to: "late")
                    }
                }
            }
        }

        @Test
        func `Events of the same users from several stores are tallied once each`() async throws {
            try await withStores(3) { database, stores in
                let users = (0..<10).map { Identifier("u\($0)") }
                _ = try await stores[0].record(users.map { StoreContract.exposure($0) })
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for (index, store) in stores.enumerated() {
                        group.addTask {
                            for number in 0..<20 {
                                _ = try await store.record(
                                    users.shuffled().map {
                                        StoreContract.goal($0, 2, at: 5, id: Identifier("\(index)-\(number)"))
                                    })
                                // As another store has sent it, too.
                                _ = try await store.record([
                                    StoreContract.goal("u0", 2, at: 5, id: Identifier("shared \(number)"))
                                ])
                            }
                        }
                    }
                    try await group.waitForAll()
                }
                let tally = try #require(try stores[1].tallies(experimentID: "e", goal: "g").first)
                #expect(tally.counted == 10)
                #expect(tally.goal.events == 3 * 20 * 10 + 20)
                let numbers = try stores[2].goalEvents(after: 0, limit: 10_000).map(\.number)
                #expect(numbers == numbers.sorted() && Set(numbers).count == 620)
                let rows = try database.execute("SELECT sum(after_count) FROM user_goals")
                #expect(rows == [["620"]])
            }
        }

        @Test
        func `An erased user does not come back with a save that was under way`() async throws {
            try await withStores { database, stores in
                for round in 0..<20 {
                    let userID = Identifier("u\(round)")
                    try await stores[0].apply(.save(["secret": "v"], onConflict: .replace), to: userID)
                    async let erased = stores[0].apply(.erase, to: userID)
                    async let saved = stores[1].apply(.save(["other": "v"], onConflict: .replace), to: userID)
                    _ = try await (erased, saved)
                    let reader = try stores[1].makeReader()
                    defer { reader.close() }
                    // Whichever came first, nothing of before the erasure is left.
                    #expect(try reader.variations(of: userID)?["secret"] == nil)
                }
                for round in 0..<20 { try await stores[1].apply(.erase, to: Identifier("u\(round)")) }
                #expect(try database.execute("SELECT count(*) FROM users") == [["0"]])
            }
        }

        @Test
        func `Events received before an erasure by another store are not stored after it`() async throws {
            try await withStores { _, stores in
                let receivedAt = DispatchTime.now().uptimeNanoseconds
                try await stores[0].apply(.erase, to: "u")
                #expect(
                    try await stores[1].record([StoreContract.exposure("u")], receivedAt: receivedAt) == [.stored])
                #expect(try stores[1].exposures(after: 0, limit: 9).isEmpty)
                #expect(try await stores[1].record([StoreContract.exposure("u")]) == [.stored])
                #expect(try stores[1].exposures(after: 0, limit: 9).count == 1)
            }
        }

        @Test
        func `All is kept if the database's default is serializable`() async throws {
            let database = try TestDatabase()
            try database.execute(
                "ALTER DATABASE \(database.name) SET default_transaction_isolation = 'serializable'")
            let stores = try (0..<2).map { _ in try PostgreSQLStore.make(in: database) }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (index, store) in stores.enumerated() {
                    group.addTask {
                        for number in 0..<60 {
                            try await store.apply(
                                .save([Identifier("s\(index)n\(number)"): "v"], onConflict: .replace), to: "hot")
                        }
                    }
                }
                try await group.waitForAll()
            }
            let reader = try stores[0].makeReader()
            #expect(try reader.profile(of: "hot")?.count == 120)
            reader.close()
            for store in stores { store.close() }
        }

        @Test
        func `Servers that start together migrate once, and a newer schema is refused`() async throws {
            let database = try TestDatabase()
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 { group.addTask { try PostgreSQLStore.make(in: database).close() } }
                try await group.waitForAll()
            }
            #expect(try database.execute("SELECT count(*) FROM holdfast_schema") == [["1"]])
            try database.execute("UPDATE holdfast_schema SET version = version + 1")
            let error = #expect(throws: DatabaseError.self) { _ = try PostgreSQLStore.make(in: database) }
            #expect(error?.description.contains("its version must be at most") == true)
        }

        @Test
        func `A role without rights to define tables serves once they are there`() async throws {
            let database = try TestDatabase(.direct)
            try PostgreSQLStore.make(in: database).close()
            let role = "role_\(database.name)"
            try database.execute(
                """
                CREATE ROLE \(role) LOGIN;
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO \(role);
                GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO \(role)
                """)
            let url = database.url.replacing("postgres@", with: "\(role)@")
            let store = try PostgreSQLStore(PostgreSQLConfiguration(url: url))
            try await store.apply(.replace(["e": "v"]), to: "user")
            _ = try await store.record([StoreContract.exposure("user"), StoreContract.goal("user")])
            store.close()
            try database.execute("DROP OWNED BY \(role); DROP ROLE \(role)")
        }
    }
}

extension PostgreSQLTests {
    @Suite("Notification")
    struct NotificationTests {
        @Test
        func `A change of projects by one store is notified to another, also after its connection was lost`()
            async throws
        {
            let database = try TestDatabase(.direct)
            let stores = try (0..<2).map { _ in try PostgreSQLStore.make(in: database) }
            defer { for store in stores { store.close() } }
            let (notices, continuation) = AsyncStream<Void>.makeStream()
            let watch = try #require(stores[0].watchProjects { continuation.yield() })
            var iterator = notices.makeAsyncIterator()
            // It reports that it has begun.
            await iterator.next()
            #expect(watch.isActive)
            _ = try await stores[1].activate("1", sdkKey: "a")
            await iterator.next()
            try database.execute(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND query LIKE 'LISTEN%'
                """)
            await iterator.next()
            #expect(watch.isActive)
            _ = try await stores[1].force("v", experimentKey: "e", userID: "u", sdkKey: "a")
            await iterator.next()
            watch.cancel()
            #expect(!watch.isActive)
        }

        /// A store, and a connection with an open transaction in which the user `anonymous`, who has no row, gets what
        /// the user `template` has.
        private func withAnonymousUser(
            _ body: (_ store: PostgreSQLStore, _ commit: () async throws -> Void) async throws -> Void
        ) async throws {
            let database = try TestDatabase(.postgreSQL)
            let store = try PostgreSQLStore.make(in: database) { $0.statementTimeout = 60 }
            defer { store.close() }
            try await SessionPool.with {
                try await store.apply(.save(["e": "theirs"], onConflict: .replace), to: "template")
                _ = try await store.record([StoreContract.exposure("template")])
                // So that there is something to merge.
                let author = Author(name: "test")
                try await store.administer(.override(experimentID: "f", variationID: "v"), of: "anonymous", by: author)
                try await store.administer(.remove(experimentID: "f"), of: "anonymous", by: author)
                let other = try SQLConnection(database.server.url(database.name))
                try other.execute(
                    """
                    DELETE FROM users WHERE user_id = 'anonymous';
                    BEGIN;
                    INSERT INTO users SELECT 'anonymous', version, profile, assignments, expires_at, attributes
                    FROM users WHERE user_id = 'template';
                    INSERT INTO exposures SELECT 'anonymous', experiment_id, 7, experiment_key, variation_id,
                        happened_at, flags, sdk_key, payload, period FROM exposures WHERE user_id = 'template';
                    """)
                try await body(store) {
                    let waiting = """
                        SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'
                        """
                    try await eventually { try database.execute(waiting) == [["1"]] }
                    try other.execute("COMMIT")
                }
            }
        }

        @Test
        func `Beside an anonymous user who is being enrolled elsewhere, an account gets no other variation`()
            async throws
        {
            try await withAnonymousUser { store, commit in
                let proposal = ProfileChange.Candidate(experimentID: "e", variationID: "decided")
                async let result = store.apply(.assign([proposal], anonymousID: "anonymous"), to: "account")
                try await commit()
                #expect(try await result.profile == nil)
            }
        }

        @Test
        func `What is stored of an anonymous user during a merge is merged, too`() async throws {
            try await withAnonymousUser { store, commit in
                async let result = store.merge("anonymous", into: "account")
                try await commit()
                #expect(try await result.profile?.variations == ["e": "theirs"])
                #expect(
                    try store.exposures(after: 0, limit: 10).map(\.exposure.userID).sorted() == ["account", "template"])
            }
        }

        @Test
        func `A pooler that nobody configured is noticed, and the store works behind it`() async throws {
            let database = try TestDatabase(.pooled)
            let found = Atomic(0)
            let stores = try (0..<2).map { _ in
                try PostgreSQLStore.make(in: database) {
                    $0.isPooled = false
                    $0.connectionsPerSession = 4
                    $0.reportPooler = { found.add(1, ordering: .relaxed) }
                }
            }
            defer { stores.forEach { $0.close() } }
            #expect(found.load(ordering: .relaxed) == 2)
            #expect(stores[0].watchProjects {} == nil)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (index, store) in stores.enumerated() {
                    group.addTask {
                        for number in 0..<20 {
                            let user = Identifier("u\(index)n\(number)")
                            try await store.apply(.replace([Identifier("e\(index)"): "v"]), to: user)
                        }
                    }
                }
                try await group.waitForAll()
            }
            let reader = try stores[0].makeReader()
            defer { reader.close() }
            for number in 0..<20 { #expect(try reader.profile(of: Identifier("u1n\(number)"))?.count == 1) }
        }

        @Test
        func `Without a pooler none is noticed, unless a prepared statement is missing or exists already`() async throws
        {
            let database = try TestDatabase(.postgreSQL)
            let found = Atomic(0)
            let store = try PostgreSQLStore.make(in: database) {
                $0.connectionsPerSession = 1
                $0.reportPooler = { found.add(1, ordering: .relaxed) }
            }
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            #expect(found.load(ordering: .relaxed) == 0 && !store.configuration.usesPooler)
            for state in PoolerDetection.states {
                #expect(PostgreSQLError(state: state, message: "").remedy == .reconnect)
            }
            store.configuration.foundPooler()
            store.configuration.foundPooler()
            #expect(found.load(ordering: .relaxed) == 1)
            try await store.apply(.replace(["e": "w"]), to: "user")
        }

        @Test
        func `Behind a pooler nothing is notified`() throws {
            let database = try TestDatabase()
            let store = try PostgreSQLStore.make(in: database) { $0.isPooled = true }
            defer { store.close() }
            #expect(store.watchProjects {} == nil)
        }
    }
}
