import ProcessTestSupport

#if PostgreSQL
    import APITestSupport
    import Foundation
    import JSON
    import PostgreSQLTestSupport
    import Storage
    import StoragePostgreSQL
    import StorageSQLite
    import Testing

    /// `holdfast copy`, between a SQLite file and a PostgreSQL database.
    @Suite struct CopyTests {
        private let directory: TemporaryDirectory
        private let database: TestDatabase

        init() throws {
            directory = try TemporaryDirectory()
            database = try TestDatabase()
        }

        private var path: String { directory.file("holdfast.db") }

        // MARK: What is copied

        private static let agent = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]

        /// Stores something in every table.
        private func fill(_ server: ServerProcess) throws {
            func ask(_ method: String, _ target: String, _ body: String, fields: [String] = []) throws {
                let response = try server.request(method, target, body, fields: fields)
                #expect((200...204).contains(response.status), "\(method) \(target): \(response.text)")
            }
            for weights in [#"["a","b"]"#, #"[{"key":"a","weight":1},{"key":"b","weight":3}]"#] {
                try ask("PUT", "/v1/experiments/checkout", #"{"id":"7","variations":\#(weights)}"#)
            }
            try ask("PUT", "/v1/attributes/country", #"{"type":"country"}"#)
            try ask("PUT", "/v1/attributes/visits", #"{"type":"number"}"#)
            let condition = #"{"type":"custom_attribute","name":"country","match":"exact","value":"de"}"#
            try ask("PUT", "/v1/segments/germans", #"{"conditions":["and",\#(condition)]}"#)
            // Texts that are equal for people and not for databases, in an order of their own.
            for user in ["ada", "\u{E9}", "e\u{301}", "\u{1F600}", "Z", "a b"] {
                let segment = user.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
                try ask("POST", "/v1/assign", #"{"user_id":"\#(user)","experiment":"checkout"}"#)
                try ask("POST", "/v1/exposures", #"{"user_id":"\#(user)","experiment":"checkout"}"#)
                try ask("PATCH", "/v1/profiles/\(segment)/attributes", #"{"country":"de","visits":3}"#)
                let time = #""timestamp":"2020-01-31T12:00:00Z""#
                try ask(
                    "POST", "/v1/events",
                    #"[{"id":"1","user_id":"\#(user)","goal":"buy","value":0.1},{"user_id":"\#(user)","goal":"see",\#(time)}]"#
                )
            }
            try ask("POST", "/v1/events", #"{"user_id":"without-profile","goal":"see"}"#)
            try ask("PATCH", "/v1/profiles/only-attributes/attributes", #"{"country":"fr"}"#)
            try ask("POST", "/ups/save", profile("saved", ["8": "v"]))
            try ask("PUT", "/v1/profiles/saved/experiments/7", #"{"variation_key":"b"}"#)
            try ask("PATCH", "/v1/sticky/id/ada", #"{"assignments":{"checkout__0":"b"}}"#)
            let forced = #"{"userId":"eve","experimentKey":"checkout","variationKey":"b"}"#
            try ask("POST", "/v1/override", forced, fields: Self.agent)
            try ask("PUT", "/v1/metrics/orders", #"{"kind":"count","goal":"buy"}"#)
            try ask("PUT", "/v1/experiments/ended", #"{"variations":["a","b"],"metrics":{"primary":["orders"]}}"#)
            try ask("POST", "/v1/exposures", #"{"user_id":"ada","experiment":"ended","variation_key":"b"}"#)
            try ask("POST", "/v1/events", #"{"user_id":"ada","goal":"buy","value":1e15}"#)
            try ask("POST", "/v1/experiments/ended/conclude", #"{"winner":"b"}"#)
            try ask("PUT", "/v1/webhooks/ops", #"{"url":"https://ops.example/","events":["holdout.delete"]}"#)
            try ask("POST", "/ups/save", profile("gone", ["8": "v"]))
            #expect(try server.request("DELETE", "/v1/profiles/gone").status == 200)
            while try server.request("GET", "/v1/experiments/ended/results")["metric"]["filling"] == true {}
        }

        /// What the API says of everything.
        private func answers(_ server: ServerProcess) throws -> [String: String] {
            var answers: [String: String] = [:]
            for target in [
                "/v1/profiles?detail=true", "/v1/profiles/ada?detail=true", "/v1/profiles/ada/attributes",
                "/v1/profiles/ada/experiments/7/explain", "/v1/events", "/v1/exposures", "/v1/audit?limit=100",
                "/v1/datafile", "/v1/datafile/history", "/v1/experiments",
                "/v1/experiments/checkout/results?goal=buy", "/v1/experiments/ended/results?goal=buy",
                "/v1/experiments/ended/results?live=true", "/v1/metrics", "/v1/attributes", "/v1/segments",
                "/v1/segments/germans/users", "/datafiles/default.json",
            ] {
                let response = try server.request("GET", target, fields: Self.agent)
                #expect(response.status == 200, "\(target): \(response.text)")
                answers[target] = response.text
            }
            let sticky = #"[{"attributeName":"id","attributeValue":"ada"}]"#
            answers["sticky"] = try server.request("POST", "/v1/sticky/lookup", sticky).text
            answers["forced"] = try server.request(
                "POST", "/v1/decide?keys=checkout", #"{"userId":"eve","decideOptions":["DISABLE_DECISION_EVENT"]}"#,
                fields: Self.agent
            )
            .text
            return answers
        }

        private func copy(_ source: String, _ target: String) throws -> Command {
            try Command("copy", "--from", source, "--to", target)
        }

        /// Copies, expects equality, and returns the comparison of all tables.
        private func copied(_ source: String, _ target: String) throws -> [Substring] {
            let command = try copy(source, target)
            #expect(command.end == .exit(0), "\(command.errors)")
            let lines = command.output.split(separator: "\n")
            #expect(lines.count == StoredTable.allCases.count + 1)
            #expect(lines.dropLast().allSatisfy { $0.hasSuffix("  equal") }, "\(command.output)")
            return Array(lines.dropLast())
        }

        @Test func `A database that goes to PostgreSQL and back is the same, and so are the answers of its servers`()
            throws
        {
            let server = try ServerProcess(database: path)
            try fill(server)
            let before = try answers(server)
            server.stop()
            let there = try copied(path, database.url)
            // Nothing is empty but the values of deleted attributes and, without approvals, bandits and warnings, proposals,
            // looks and findings.
            #expect(there.count { $0.contains(#/ 0  cbf29ce484222325/#) } == 4)
            let moved = try ServerProcess(database: database.url)
            let after = try answers(moved)
            for (target, answer) in before { #expect(after[target] == answer) }
            moved.stop()
            let back = try copied(database.url, directory.file("back.db"))
            #expect(back == there)
            let returned = try ServerProcess(database: directory.file("back.db"))
            #expect(try answers(returned) == before)
            // It goes on with numbers that nobody had.
            #expect(try returned.request("POST", "/v1/events", #"{"user_id":"new","goal":"buy"}"#).status == 200)
            #expect(try returned.request("PUT", "/v1/attributes/plan", #"{"type":"string"}"#).status < 300)
            returned.stop()
        }

        // MARK: Interrupted and repeated copies

        /// Fails after some writes.
        private final class Interrupted: CopyTarget {
            struct Interruption: Error {}

            private let target: any CopyTarget
            private var writes: Int

            init(_ target: any CopyTarget, after writes: Int) {
                self.target = target
                self.writes = writes
            }

            var name: String { target.name }
            func rows(of table: StoredTable, after row: CopiedRow?, limit: Int) throws -> [CopiedRow] {
                try target.rows(of: table, after: row, limit: limit)
            }
            func counters() throws -> CopiedCounters { try target.counters() }
            func mark() throws -> CopyMark? { try target.mark() }
            func begin(copyOf source: String, isFirst: Bool) throws {
                try target.begin(copyOf: source, isFirst: isFirst)
            }
            func finish(_ counters: CopiedCounters) throws { try target.finish(counters) }
            func replace(_ old: [CopiedRow], with new: [CopiedRow], in table: StoredTable) throws {
                guard writes > 0 else { throw Interruption() }
                writes -= 1
                try target.replace(old, with: new, in: table)
            }
        }

        @Test(arguments: [false, true])
        func `An interrupted copy serves nobody, and goes on where it was`(isPostgreSQL: Bool) throws {
            let server = try ServerProcess(database: path)
            try fill(server)
            server.stop()
            let target = isPostgreSQL ? database.url : directory.file("copy.db")
            try {
                let copy: any CopyTarget =
                    try isPostgreSQL ? PostgreSQLCopy.target(url: target) : SQLiteCopy.target(path: target)
                let source = try SQLiteCopy.source(path: path)
                #expect(throws: Interrupted.Interruption.self) {
                    try StoreCopy(from: source, to: Interrupted(copy, after: 6)).run()
                }
            }()
            let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", target)
            #expect(refused.end == .exit(1))
            #expect(refused.errors.contains("run 'holdfast copy' once more"), "\(refused.errors)")
            let command = try copy(path, target)
            #expect(command.end == .exit(0), "\(command.errors)")
            let rows = try #require(command.output.firstMatch(of: #/(\d+) rows were written/#)?.output.1)
            let all = command.output.matches(of: #/ (\d+)  [0-9a-f]{16}  equal/#).compactMap { Int($0.output.1) }
            #expect((try #require(Int(rows))) < all.reduce(0, +))
            // A copy of the same may follow until a server uses it, and of nothing else.
            #expect(try copied(path, target).count == all.count)
            let other = directory.file("other.db")
            #expect(try Command("migrate", "--database", other).end == .exit(0))
            #expect(try copy(other, target).errors.contains("must be empty; it holds a copy of"))
            try ServerProcess(database: target).stop()
            let used = try copy(path, target)
            #expect(used.end == .exit(1))
            #expect(
                used.errors.contains("must be empty") || used.errors.contains("no server must use"), "\(used.errors)")
        }

        @Test func `What changes during a copy is in the next, and a read-only server refuses the rest`() throws {
            let server = try ServerProcess(database: path)
            try fill(server)
            _ = try copied(path, database.url)
            #expect(try server.request("DELETE", "/v1/profiles/ada").status == 200)
            #expect(try server.request("POST", "/v1/profiles/saved/merge", #"{"from":"Z"}"#).status == 200)
            #expect(try server.request("POST", "/ups/save", profile("late", ["8": "v"])).status == 200)
            #expect(try server.request("PUT", "/v1/experiments/second", #"{"variations":["x","y"]}"#).status < 300)
            server.stop()
            let last = try ServerProcess(database: path, ["--read-only"])
            let before = try answers(last, without: "ada")
            _ = try copied(path, database.url)
            let moved = try ServerProcess(database: database.url)
            #expect(try answers(moved, without: "ada") == before)
            moved.stop()
            last.stop()
        }

        /// What the API says of everything but a user who is gone.
        private func answers(_ server: ServerProcess, without user: String) throws -> [String: String] {
            var answers: [String: String] = [:]
            for target in [
                "/v1/profiles?detail=true", "/v1/events", "/v1/exposures", "/v1/audit?limit=100", "/v1/experiments",
                "/v1/experiments/checkout/results?goal=buy", "/v1/segments/germans/users",
            ] {
                answers[target] = try server.request("GET", target).text
                #expect(answers[target]?.contains("\"\(user)\"") == false, "\(target)")
            }
            return answers
        }

        @Test func `A source that does not exist makes no target, and a password does not belong on the command line`()
            throws
        {
            let target = directory.file("target.db")
            let missing = try copy(directory.file("none.db"), target)
            #expect(missing.end == .exit(1))
            #expect(missing.errors.contains("none.db cannot be used: it must exist"), "\(missing.errors)")
            #expect(!FileManager.default.fileExists(atPath: target))
            let password = try copy("postgresql://user:secret@127.0.0.1/x", target)
            #expect(password.errors.contains("the whole string in HOLDFAST_FROM"), "\(password.errors)")
            #expect(!password.errors.contains("secret"))
            #expect(try Command("copy", "--from", path).errors.contains("--to must name a database"))
        }
    }
#endif
