import ProcessTestSupport

#if PostgreSQL
    import APITestSupport
    import Foundation
    import Glibc
    import PostgreSQLTestSupport
    import Testing

    /// The commands of the articles on PostgreSQL, in their order, against a server of their own.
    @Suite struct PostgreSQLManualTests {
        @Test(arguments: [("RunOnPostgreSQL", 7), ("MoveFromSQLite", 4)])
        func `Each command of an article on PostgreSQL succeeds`(article: String, count: Int) throws {
            let server = try PostgreSQLServer(["fsync=off"])
            try SQLConnection(server.url("postgres")).execute("CREATE ROLE holdfast LOGIN")
            let directory = try TemporaryDirectory()
            #expect(try Command("migrate", "--database", directory.file("holdfast.db")).end == .exit(0))
            let host = "127.0.0.1:\(server.port)"
            var environment = [
                "PATH": "\(URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent().path):/usr/bin:/bin",
                "HOLDFAST_LISTEN": "127.0.0.1:0", "PGHOST": "127.0.0.1", "PGPORT": "\(server.port)",
                "PGUSER": "postgres",
            ]
            let commands = try commands(of: article)
            #expect(commands.count == count)
            for written in commands {
                let command = written.replacing("one.example,two.example", with: "\(host),\(host)")
                    .replacing("db.example", with: host)
                if let variable = command.wholeMatch(of: #/export (\w+)='(.*)'/#) {
                    environment[String(variable.output.1)] = String(variable.output.2)
                    continue
                }
                let child = try ChildProcess(
                    "/bin/sh", ["-c", "cd '\(directory.path)' && exec \(command)"], environment: environment)
                if command.contains(" serve") {
                    #expect(child.errors.first { $0.contains(#""message":"listening""#) } != nil, "\(written)")
                    child.send(SIGTERM)
                }
                #expect(child.wait() == .exit(0), "\(written): \(child.errors.text)\(child.output.text)")
            }
        }

        @Test func `A server needs no more rights than the manual names, and without them it is not started again`()
            throws
        {
            let server = try PostgreSQLServer(["fsync=off"])
            let database = try SQLConnection(server.url("postgres"))
            try database.execute("CREATE ROLE holdfast LOGIN")
            try database.execute("CREATE DATABASE holdfast TEMPLATE template0 ENCODING 'UTF8'")
            let owner = "postgresql://postgres@127.0.0.1:\(server.port)/holdfast"
            let role = "postgresql://holdfast@127.0.0.1:\(server.port)/holdfast"
            #expect(try Command("migrate", "--database", owner).end == .exit(0))
            let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", role)
            #expect(refused.end == .exit(78), "\(refused.errors)")
            let tables = try SQLConnection(owner)
            try tables.execute("GRANT SELECT ON holdfast_schema TO holdfast")
            let lacking = try Command("serve", "--listen", "127.0.0.1:0", "--database", role)
            #expect(lacking.end == .exit(78), "\(lacking.errors)")
            for name in try tables.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'holdfast_schema'"
            ).compactMap(\.first) {
                #expect(lacking.errors.contains("INSERT on \(name ?? "")"), "\(lacking.errors)")
            }
            for grant in try grants() { try tables.execute(grant) }
            let holdfast = try ServerProcess(database: role)
            let client = try holdfast.client()
            #expect(try client.request("GET", "/readyz").status == 200)
            for (method, target, body) in [
                ("PUT", "/v1/experiments/checkout", #"{"id":"7001","variations":["a","b"]}"#),
                ("POST", "/v1/assign", #"{"user_id":"ann","experiment":"checkout"}"#),
                ("POST", "/v1/exposures", #"{"user_id":"ann","experiment":"checkout"}"#),
                ("POST", "/v1/events", #"{"user_id":"ann","goal":"order"}"#),
                ("GET", "/v1/feed?after=oldest", nil), ("DELETE", "/v1/profiles/ann", nil), ("GET", "/v1/audit", nil),
                ("GET", "/readyz", nil),
            ] as [(String, String, String?)] {
                let response = try client.request(method, target, body)
                #expect(response.status < 300, "\(target): \(response.text)")
            }
            holdfast.stop()
        }

        /// The statements that the manual gives to the role of the servers.
        private func grants() throws -> [String] {
            try commands(of: "RunOnPostgreSQL").flatMap {
                $0.matches(of: #/"(GRANT [^"]*)"/#).map { String($0.output.1) }
            }
        }

        /// The lines of blocks of the shell, without those that change the system.
        private func commands(of article: String) throws -> [String] {
            let text = try String(contentsOfFile: "\(ExampleSection.catalog)/\(article).md", encoding: .utf8)
            var commands: [String] = []
            var isShell = false
            for line in text.components(separatedBy: "\n").map({ $0.trimmingCharacters(in: .whitespaces) }) {
                if line.hasPrefix("```") { isShell = line == "```sh" } else if isShell { commands.append(line) }
            }
            return commands.filter { !$0.contains("sudo ") }
        }
    }
#endif
