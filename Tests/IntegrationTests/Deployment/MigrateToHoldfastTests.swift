import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// Imports of other systems' formats, from real programs where Debian has them.
@Suite struct MigrateToHoldfastTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    /// User ids with what shells, awk, Redis and CSV treat specially.
    private static let users = [
        "ann", #"a "quoted" one"#, #"back\slash"#, "two  spaces ", "{not json", "O'Neill, the \"second\"", "größe-☃",
        "$HOME",
        "*", "a,b;c", "semi;colon", "tab\tbed", "percent%s",
    ]

    @Test(.enabled(if: Tool.redisServer.isExpected, "redis-server is not installed"))
    func `Profiles of the Agent's Redis service are exported as the manual says, and imported`() throws {
        let redis = try RedisServer(in: directory)
        // As the Agent stores them: SET user_id map, without an expiry.
        var expected: [String] = []
        for (number, user) in Self.users.enumerated() {
            try redis.run(["SET", user, #"{"77":{"variation_id":"v\#(number)"}}"#])
            expected.append(profile(Self.escaped(user), ["77": "v\(number)"]))
        }
        try redis.run(["RPUSH", "a-list", "1"])
        try redis.run(["SET", "not-a-profile", "1"])
        let command = try Self.exportCommand(in: "MigrateFromRedis.md")
            .replacing(#/REDIS=.*/#, with: "REDIS='redis-cli -s \(redis.socket)'")
        try runAt("/bin/sh", ["-c", "cd '\(directory.path)'\n\(command)"])
        let imported = try Command(
            "import", "--from", "redis", "--keep", "--create", "--database", database, directory.file("lines"))
        #expect(imported.output == "imported \(Self.users.count), refused 2", "\(imported.errors)")
        #expect(imported.errors.contains("got 'WRONGTYPE"))
        let stored = try Command("export", "--database", database).output.split(separator: "\n").map(String.init)
        #expect(Set(stored) == Set(expected))
    }

    @Test(.enabled(if: Tool.redisServer.isExpected, "redis-server is not installed"))
    func `Documents of GrowthBook in Redis are exported as the manual says, and imported`() throws {
        try makeCheckout()
        let redis = try RedisServer(in: directory)
        for user in ["ann", #"b "q" b"#] {
            let id = Self.escaped(user)
            try redis.run([
                "SET", "id||\(user)",
                #"{"attributeName":"id","attributeValue":"\#(id)","assignments":{"checkout__0":"1"}}"#,
            ])
        }
        try redis.run(["SET", "other", "value"])
        let command = try Self.exportCommand(in: "MigrateFromGrowthBook.md")
            .replacing(#/REDIS=.*/#, with: "REDIS='redis-cli -s \(redis.socket)'")
        try runAt("/bin/sh", ["-c", "cd '\(directory.path)'\n\(command)"])
        let imported = try Command(
            "import", "--from", "growthbook", "--database", database, directory.file("documents"))
        #expect(imported.output == "imported 2, refused 0", "\(imported.errors)")
        #expect(
            try Command("export", "--database", database).output
                == [profile("ann", ["7001": "70012"]), profile(#"b \"q\" b"#, ["7001": "70012"])].joined(
                    separator: "\n"))
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `What cqlsh writes for rows of Cassandra is imported`() throws {
        // As ExportProcess of cqlsh's copyutil does it.
        let script = """
            import csv, json, sys
            from cqlshlib.displaying import NO_COLOR_MAP
            from cqlshlib.formatting import CqlType, DateTimeFormat, get_formatter

            def formatted(value, name):
                kind = CqlType(name)
                return get_formatter(value, kind)(
                    value, cqltype=kind, encoding="utf8", colormap=NO_COLOR_MAP, date_time_format=DateTimeFormat(),
                    float_precision=5, nullval="", quote=False, decimal_sep="", thousands_sep="",
                    boolean_styles=("True", "False"))

            users = \(Self.pythonList(Self.users.filter { !$0.contains("\\") && !$0.contains("\t") }))
            writer = csv.writer(open(sys.argv[1], "w", newline=""), delimiter=",", quotechar='"', escapechar="\\\\",
                                doublequote=False)
            writer.writerow(["user_id", "experiment_bucket_map"])
            for number, user in enumerate(users):
                variation = f"v{number}'s"
                value, kind = [
                    ({"77": {"variation_id": variation}}, "map<text, frozen<map<text, text>>>"),
                    ({"77": variation}, "map<text, text>"),
                    (json.dumps({"77": {"variation_id": variation}}), "text"),
                ][number % 3]
                writer.writerow([formatted(user, "text"), formatted(value, kind)])
            """
        let file = directory.file("profiles.csv")
        try runAt(
            PythonPackages.interpreter, [try directory.write(script, to: "write.py"), file])
        let imported = try Command(
            "import", "--from", "cassandra", "--create", "--database", database, file)
        let users = Self.users.filter { !$0.contains("\\") && !$0.contains("\t") }
        #expect(imported.output == "imported \(users.count), refused 0", "\(imported.errors)")
        let expected = users.enumerated().map { profile(Self.escaped($1), ["77": "v\($0)'s"]) }
        let stored = try Command("export", "--database", database).output.split(separator: "\n").map(String.init)
        #expect(Set(stored) == Set(expected))
    }

    @Test func `A dry run stores nothing, and what it foresees happens`() throws {
        let server = try ServerProcess(database: database, ["--max-assignments", "2"])
        for body in [profile("ann", ["1": "a", "2": "b"]), profile("bob", ["1": "a"])] {
            #expect(try server.request("POST", "/ups/save", body).status == 200)
        }
        #expect(try server.request("PUT", "/v1/profiles/cy/experiments/1", #"{"variation_id":"o"}"#).status == 200)
        let lines = [
            profile("ann", ["1": "z", "2": "b"]), profile("bob", ["2": "y"]), profile("cy", ["1": "z"]),
            profile("ann", ["3": "z"]), "{", profile("dan", ["1": "a"]),
        ]
        let file = try directory.write(lines.joined(separator: "\n"), to: "lines")
        let before = try server.request("GET", "/v1/profiles?detail=true").text
        let arguments = ["import", "--dry-run", "--max-assignments", "2", "--database", database, file]
        let child = try ChildProcess(Executable.holdfast, arguments)
        #expect(child.wait() == .exit(1))
        #expect(
            child.output.all == [
                "would import 4, refuse 2; nothing was stored",
                "assignments: 2 new, 1 unchanged, 1 overwritten, 0 kept as stored, 1 kept as overrides",
            ])
        #expect(child.errors.all.last == "line 1 would overwrite the experiment 1 of 'ann': 'a' becomes 'z'")
        #expect(try server.request("GET", "/v1/profiles?detail=true").text == before)
        let imported = try Command("import", "--max-assignments", "2", "--database", database, file)
        #expect(imported.output == "imported 4, refused 2")
        #expect(
            try server.request("GET", "/v1/profiles").text
                == [
                    profile("ann", ["1": "z", "2": "b"]), profile("bob", ["1": "a", "2": "y"]),
                    profile("cy", ["1": "o"]),
                    profile("dan", ["1": "a"]),
                ].map { $0 + "\n" }.joined())
        server.stop()
    }

    @Test func `A file of any size needs little memory`() throws {
        // Prints the peak of a child's resident memory in MiB, after an import of so many records of 500 bytes.
        let script = """
            import resource, subprocess, sys
            program, database, count = sys.argv[1:]
            table = database + ".csv"
            with open(table, "w") as file:
                file.write("user_id,ignored,experiment_id,variation_id\\n")
                for number in range(int(count)):
                    file.write(f"user-{number},{'x' * 480},77,v\\n")
            output = subprocess.check_output([program, "import", "--from", "csv", "--create", "--database", database, table])
            assert output.decode() == f"imported {count}, refused 0\\n", output
            print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
            """
        let path = try directory.write(script, to: "peak.py")
        let peaks = try ["2000", "100000"].map { count in
            let child = try ChildProcess(
                try #require(Executable.find("python3")),
                [path, Executable.holdfast, directory.file("\(count).db"), count])
            #expect(child.wait() == .exit(0), "\(child.errors.text)")
            return try #require(Int(child.output.text))
        }
        // The file has 48 MiB.
        #expect(peaks[1] - peaks[0] < 24, "\(peaks)")
    }

    @Test(arguments: [
        (["--from", "csv", "--attribute", "id"], "--attribute must come with --from growthbook; got --from csv"),
        (["--header", "a"], "--header must come with --from csv or --from cassandra; got --from profiles"),
        (["--from", "csv", "--delimiter", "ab"], "--delimiter must be one ASCII character"),
        (["--from", "csv", "--column", "uid"], "--column must be NAME=COLUMN"),
        (["--from", "csv", "--sdk-key", "none"], "the SDK key must be one of the database's (default); got 'none'"),
        (["--from", "csv", "--header", "a,b"], "the header must have a column user_id; it has a, b"),
    ])
    func `Options that do not fit are refused with what is required`(options: [String], reason: String) throws {
        try makeCheckout()
        let child = try ChildProcess(Executable.holdfast, ["import", "--database", database] + options)
        #expect(child.wait() == .exit(1))
        #expect(child.errors.text.hasPrefix("Error: \(reason)"), "\(child.errors.text)")
    }

    @Test func `A dry run makes no database`() throws {
        let child = try ChildProcess(
            Executable.holdfast, ["import", "--dry-run", "--create", "--database", database])
        #expect(child.wait() == .exit(1))
        #expect(child.errors.text.contains("a dry run compares with a database, which must exist"))
        #expect(!FileManager.default.fileExists(atPath: database))
    }

    private func makeCheckout() throws {
        let server = try ServerProcess(database: database)
        #expect(try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        server.stop()
    }

    /// The shell block of an article that asks Redis.
    private static func exportCommand(in article: String) throws -> String {
        let text = try String(contentsOfFile: "\(ExampleSection.catalog)/\(article)", encoding: .utf8)
        let blocks = text.matches(of: #/```sh\n((?:(?!```).*\n)*)```/#).map { String($0.output.1) }
        guard let block = blocks.first(where: { $0.contains("--scan") }) else {
            throw TestFailure("\(article) has no export")
        }
        return block
    }

    private static func escaped(_ user: String) -> String {
        user.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\t", with: "\\t")
    }

    private static func pythonList(_ texts: [String]) -> String {
        "[" + texts.map { "\"" + escaped($0) + "\"" }.joined(separator: ", ") + "]"
    }
}

/// A Redis without a port.
private final class RedisServer {
    let socket: String
    private let child: ChildProcess

    init(in directory: TemporaryDirectory) throws {
        socket = directory.file("redis.sock")
        child = try ChildProcess(
            Tool.redisServer.path(),
            ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", directory.path])
        guard child.output.first(where: { $0.contains("ready to accept connections") }) != nil else {
            throw TestFailure("Redis did not start: \(child.output.text)")
        }
    }

    deinit {
        // Redis would wait for SIGTERM in vain: a child inherits the signals that a thread of Dispatch blocks.
        child.send(SIGKILL)
        child.wait()
    }

    func run(_ command: [String]) throws {
        guard let client = Executable.find("redis-cli") else { throw TestFailure("there is no redis-cli") }
        try runAt(client, ["-s", socket] + command)
    }
}
