import ProcessTestSupport

#if PostgreSQL
    import APITestSupport
    import Foundation
    import Glibc
    import PostgreSQLTestSupport
    import Testing

    /// The commands of the articles on PostgreSQL, in their order, against a server of their own.
    @Suite struct PostgreSQLManualTests {
        @Test(arguments: [("RunOnPostgreSQL", 6), ("MoveFromSQLite", 4)])
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
