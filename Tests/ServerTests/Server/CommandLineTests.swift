import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// The program as an operator runs it.
@Suite struct CommandLineTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    @Test func `The help of serve has its options in groups`() throws {
        let help = try runAt(Executable.holdfast, ["serve", "--help"])
        let titles = help.matches(of: #/(?m)^([A-Z ]+):$/#).map(\.output.1)
        #expect(titles == ["BASICS", "LOG AND TRACES", "ACCESS", "USERS AND RETENTION", "EDGE", "WEBHOOKS", "LIMITS"])
        let groups = help.components(separatedBy: "\n\n")
        for (title, option) in [
            ("BASICS", "--listen"), ("BASICS", "--datafile "), ("ACCESS", "--jwt-issuer"),
            ("EDGE", "--upstream-timeout"),
            ("USERS AND RETENTION", "--datafile-history"), ("LIMITS", "--max-connections"),
        ] {
            let group = groups.first { $0.hasPrefix("\(title):") }
            #expect(group?.contains("\n  \(option)") == true, "\(option)")
        }
    }

    @Test(arguments: [
        (["serve", "--port", "80"], "--listen HOST:PORT, such as --listen 127.0.0.1:9000; got --port"),
        (["serve", "--host=0.0.0.0"], "--listen HOST:PORT"), (["serve", "--db", "x.db"], "--database holdfast.db or"),
        (["serve", "--bogus"], "--bogus"),
        (["serve", "--listen"], "--listen"), (["bogus"], "bogus"),
        (["serve", "--listen", "nowhere"], "nowhere"), (["serve", "--listen", "127.0.0.1:99999"], "99999"),
        (["serve", "--event-loops", "0"], "--event-loops"), (["serve", "--cache-size", "1 GB"], "--cache-size"),
        (["serve", "--checkpoint-size", "1KiB"], "--checkpoint-size"),
        (["serve", "--event-loops", "129"], "--event-loops"), (["serve", "--cache-size", "1024GiB"], "--cache-size"),
        (["serve", "--max-body-size", "9223372036854775807"], "--max-body-size"),
        (["serve", "--assignment-ttl", "0.1ms"], "--assignment-ttl"),
        (["serve", "--idle-timeout", "0x10s"], "--idle-timeout"),
        (["import", "--assignment-ttl", "5"], "--assignment-ttl"),
        (["serve", "--max-header-size", "1"], "--max-header-size"),
        (["serve", "--max-body-size", "0"], "--max-body-size"),
        (["serve", "--max-waiting-responses", "1"], "--max-waiting-responses"),
        (["serve", "--trusted-proxies", "10.0.0.0/33"], "--trusted-proxies"),
        (["serve", "--shutdown-delay", "1"], "--shutdown-delay"),
        (["serve", "--assignment-ttl", "5"], "--assignment-ttl"),
        (["serve", "--idle-timeout", "-1s"], "--idle-timeout"),
        (["serve", "--lock-timeout", "soon"], "--lock-timeout"), (["serve", "--log-level", "loud"], "--log-level"),
        (["serve", "--tokens-file", "/nowhere/tokens"], "/nowhere/tokens"),
        (["serve", "--database", "/nowhere/holdfast.db"], "/nowhere/holdfast.db"),
        (["export", "--database", "/nowhere/holdfast.db"], "/nowhere/holdfast.db"),
        (["backup", "--database", "/nowhere/holdfast.db", "/nowhere/copy"], "/nowhere/holdfast.db"),
        (["health", "--url", "ftp://127.0.0.1"], "--url"), (["health", "--timeout", "x"], "--timeout"),
        (["health", "--url", "http://127.0.0.1:1"], "127.0.0.1:1"),
    ])
    func `What is wrong is said in one line and with the exit status`(arguments: [String], named: String) throws {
        let child = try ChildProcess(Executable.holdfast, arguments)
        let end = child.wait()
        #expect(end == .exit(1) || end == .exit(64) || end == .exit(78))
        #expect(child.output.all.isEmpty)
        let errors = child.errors.all.filter { $0.hasPrefix("Error: ") }
        #expect(errors.count == 1)
        #expect(errors.first?.contains(named) == true, "\(child.errors.text)")
        // Behind it there is at the most how the command is used.
        let known = ["Error: ", "Help: ", "Usage: ", "  See "]
        #expect(child.errors.all.allSatisfy { line in known.contains { line.hasPrefix($0) } }, "\(child.errors.text)")
    }

    @Test func `A busy address names the option that shares it`() throws {
        let server = try ServerProcess(database: database)
        let address = "127.0.0.1:\(server.port)"
        let refused = try Command("serve", "--listen", address, "--database", database)
        #expect(refused.end == .exit(1))
        #expect(refused.errors.contains("cannot serve at \(address)"), "\(refused.errors)")
        #expect(refused.errors.contains("--reuse-port"), "\(refused.errors)")
        server.stop()
    }

    @Test func `A setting is taken from the environment, and from the option before it`() throws {
        let environment = [
            "HOLDFAST_DATABASE": database, "HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_MAX_BODY_SIZE": "1KiB",
            "HOLDFAST_ACCESS_LOG": "true", "HOLDFAST_MAX_HEADER_SIZE": "1MiB",
        ]
        let server = try ServerProcess(
            database: directory.file("other.db"), ["--max-header-size", "2KiB"], environment: environment)
        #expect(FileManager.default.fileExists(atPath: directory.file("other.db")))
        #expect(!FileManager.default.fileExists(atPath: database))
        #expect(try server.request("POST", "/ups/save", String(repeating: " ", count: 2_000)).status == 413)
        #expect(
            try server.client().request("GET", "/livez", fields: ["X: \(String(repeating: "a", count: 2_048))"]).status
                == 431)
        #expect(try server.request("GET", "/livez").status == 200)
        let line = try #require(server.child.errors.first { $0.contains("/livez") })
        #expect(try [200, 431].contains(JSONParser().parse(line)["status"].integer))

        let wrong = try Command("serve", environment: ["HOLDFAST_IDLE_TIMEOUT": "never"])
        #expect(wrong.end == .exit(78))
        #expect(wrong.errors.contains("HOLDFAST_IDLE_TIMEOUT must be a time"))
        #expect(wrong.errors.contains("got 'never'"))
    }

    @Test(arguments: [
        (
            ["--idle-timeout", "0s"],
            "--idle-timeout must be a time from 1ms to 36500d, such as 500ms, 10s, 15m, 12h or 90d; got '0s'"
        ),
        (
            ["--idle-timeout", "-1s"],
            "--idle-timeout must be a time from 1ms to 36500d, such as 500ms, 10s, 15m, 12h or 90d; got '-1s'"
        ),
        (
            ["--change-heartbeat", "1m"],
            "--change-heartbeat must be a time from 100ms to 30s, such as 500ms, 10s, 15m, 12h or 90d; got '1m'"
        ),
        (
            ["--event-retention", "21d"],
            "--event-retention must be a time from 22d to 36500d, such as 500ms, 10s, 15m, 12h or 90d; got '21d'"
        ),
        (
            ["--checkpoint-size", "-1"],
            "--checkpoint-size must be a size from 64KiB to 1GiB, such as 16KiB or 64MiB; got '-1'"
        ),
        (["--event-loops", "-1"], "--event-loops must be a whole number from 1 to 128; got '-1'"),
        (["--log-format", "xml"], "--log-format must be auto, json or text; got 'xml'"),
        (["--database", "/tmp"], "the database must be a file; /tmp is a directory"),
        (["--tokens-file", "/tmp"], "the token file must be a file of lines 'scope name secret'; /tmp is a directory"),
    ])
    func `A wrong option is answered with what is required and what was found`(arguments: [String], message: String)
        throws
    {
        let refused = try ChildProcess(Executable.holdfast, ["serve", "--listen", "127.0.0.1:0"] + arguments)
        #expect(refused.wait() == .exit(78))
        #expect(refused.errors.text == "Error: \(message)")
    }

    @Test(arguments: [
        "http://a b", "http://", "https:///path", "holdfast.internal:8080", "ftp://holdfast.internal", "http://a:99999",
        "http://a:b", "http://a?b=c", "http://a#b", "",
    ])
    func `An edge is not started for an address that no server can have`(url: String) throws {
        let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", database, "--upstream", url)
        #expect(refused.end == .exit(78))
        #expect(
            refused.errors
                == "Error: --upstream must be an http or https URL of a server, without a query; got '\(url)'")
        #expect(!FileManager.default.fileExists(atPath: database))
    }

    @Test func `The address of an upstream has no password, which everybody could see`() throws {
        let refused = try Command("serve", "--upstream", "http://edge:hidden@holdfast.internal")
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("without user and password") && !refused.errors.contains("hidden"))
    }

    @Test func `A size below nothing is refused with what is required`() throws {
        let refused = try Command("serve", "--cache-size", "-1")
        #expect(refused.errors.hasPrefix("Error: --cache-size must be a size from 0 to "), "\(refused.errors)")
        #expect(refused.errors.hasSuffix("got '-1'"))
    }

    @Test(arguments: [("yes", true), ("TRUE", true), ("1", true), ("No", false), ("false", false), ("0", false)])
    func `A switch is set by any of the usual words`(word: String, isSet: Bool) throws {
        let server = try ServerProcess(database: database, environment: ["HOLDFAST_ACCESS_LOG": word])
        #expect(try server.request("GET", "/livez").status == 200)
        server.stop()
        #expect(server.child.errors.text.contains("/livez") == isSet)
    }

    @Test func `A switch is set by no other word`() throws {
        let refused = try Command("serve", environment: ["HOLDFAST_ACCESS_LOG": "maybe"])
        #expect(refused.end == .exit(78))
        #expect(refused.errors == "Error: HOLDFAST_ACCESS_LOG must be yes, no, true, false, 1 or 0; got 'maybe'")
    }

    @Test func `A variable that is no setting is warned of at the start, with the one that was meant`() throws {
        let environment = [
            "HOLDFAST_IDEL_TIMEOUT": "5s", "HOLDFAST_LOGLEVEL": "info", "HOLDFAST_GREETING": "a secret",
            "HOLDFAST_URL": "http://x",
            "HOLDFAST_TIMEOUT": "1s", "HOLDFAST_LOCK_TIMEOUT": "1s",
        ]
        func warnings(_ environment: [String: String]) throws -> [String] {
            let server = try ServerProcess(database: database, environment: environment)
            server.stop()
            return try server.child.errors.all.compactMap { line in
                let event = try JSONParser().parse(line)
                return event["level"] == "warning" ? event["message"].string : nil
            }
        }
        let first = "a variable that begins with HOLDFAST_ must name an option; "
        #expect(
            try warnings(environment) == [
                first + "HOLDFAST_GREETING names none",
                first + "HOLDFAST_IDEL_TIMEOUT names none; did you mean HOLDFAST_IDLE_TIMEOUT?",
                first + "HOLDFAST_LOGLEVEL names none; did you mean HOLDFAST_LOG_LEVEL?",
            ])
        // What Kubernetes tells of a service called holdfast.
        let service = [
            "HOLDFAST_SERVICE_HOST": "10.0.0.1", "HOLDFAST_SERVICE_PORT": "8080",
            "HOLDFAST_PORT": "tcp://10.0.0.1:8080",
            "HOLDFAST_PORT_8080_TCP_ADDR": "10.0.0.1",
        ]
        #expect(try warnings(service) == [])
    }

    @Test(.enabled(if: Executable.find("prlimit") != nil, "there is no prlimit here"))
    func `A limit of open files that is too low for the connections is warned of`() throws {
        let prlimit = try #require(Executable.find("prlimit"))
        for (connections, isEnough) in [("301", false), ("300", true)] {
            let server = try ServerProcess(
                database: database, ["--max-connections", connections], through: [prlimit, "--nofile=500:500"])
            server.stop()
            let warning =
                "301 connections need a limit of 501 open files; it is 500, enough for 300: raise it (ulimit -n), or lower --max-connections"
            #expect(server.child.errors.text.contains(warning) != isEnough, "\(server.child.errors.text)")
        }
    }

    @Test(.enabled(if: Executable.find("prlimit") != nil, "there is no prlimit here"))
    func `Descriptors are reserved, and a limit that is too small is refused at the start`() throws {
        let prlimit = try #require(Executable.find("prlimit"))
        for limit in ["64", "128", "215"] {
            let child = try ChildProcess(
                prlimit,
                [
                    "--nofile=\(limit):\(limit)", Executable.holdfast, "serve", "--listen", "127.0.0.1:0", "--database",
                    database,
                ])
            #expect(child.wait() == .exit(78), "\(child.errors.text)")
            #expect(
                child.errors.text.contains("the limit of open files must be at least 216; it is \(limit)"),
                "\(child.errors.text)")
        }
        let server = try ServerProcess(database: database, through: [prlimit, "--nofile=216:216"])
        let clients = try (0..<16).map { _ in try server.client() }
        for client in clients { #expect(try client.request("GET", "/livez").status == 200) }
        // Many more than there are descriptors: each is refused, and the process goes on.
        let others = try (0..<300).map { _ in try server.client() }
        for client in others { #expect(try client.receive().status == 503) }
        for client in clients {
            #expect(try client.request("POST", "/ups/save", profile("ada", ["1": "1"])).status == 200)
        }
        server.stop()
    }

    @Test func `A request is logged only when that is asked for`() throws {
        let server = try ServerProcess(database: database)
        #expect(try server.request("GET", "/livez").status == 200)
        server.stop()
        #expect(!server.child.errors.text.contains("/livez"))
        for line in server.child.errors.all { #expect(try JSONParser().parse(line).object != nil) }
    }

    @Test func `The health command's exit status says whether a server is ready`() throws {
        let server = try ServerProcess(database: database, ["--lock-timeout", "50ms"])
        let url = "http://127.0.0.1:\(server.port)/health"
        let healthy = try Command("health", "--url", url)
        #expect(healthy.end == .exit(0))
        #expect(healthy.output == #"{"status":"ok"}"#)
        #expect(try Command("health", environment: ["HOLDFAST_URL": url]).end == .exit(0))

        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")
        var ill = healthy
        let deadline = ContinuousClock.now + .seconds(60)
        while ill.end == .exit(0), .now < deadline { ill = try Command("health", "--url", url) }
        #expect(ill.end == .exit(1))
        #expect(ill.errors.contains("503"))
        server.stop()
        #expect(try Command("health", "--url", url).end == .exit(1))
    }

    @Test(arguments: ["127.0.0.1", "0.0.0.0", "[::]", "localhost"])
    func `The health command asks the server that listens where the environment says`(host: String) throws {
        let tokens = try directory.write("read dashboard read-secret-0123456789\n", to: "tokens")
        let options = ["--listen", "\(host):0", "--tokens-file", tokens]
        let server = try ServerProcess(database: database, options)
        let healthy = try Command("health", environment: ["HOLDFAST_LISTEN": "\(host):\(server.port)"])
        #expect(healthy.end == .exit(0), "\(healthy.errors)")
        server.stop()
        let gone = try Command("health", environment: ["HOLDFAST_LISTEN": "\(host):\(server.port)"])
        #expect(gone.end == .exit(1))
        #expect(gone.errors.contains(":\(server.port)/health does not respond"), "\(gone.errors)")
        let unknown = try Command("health", environment: ["HOLDFAST_LISTEN": "\(host):0"])
        #expect(unknown.end == .exit(1))
        #expect(unknown.errors.contains("--url"), "\(unknown.errors)")
    }

    @Test(arguments: ["serve", "migrate", "export", "import", "backup"])
    func `A file that is no database of ours is refused and left as it is`(subcommand: String) throws {
        let text = directory.file("text"), other = directory.file("other.db"), newer = directory.file("newer.db")
        try Data(repeating: 65, count: 8_192).write(to: URL(fileURLWithPath: text))
        try DatabaseConnection(other).execute("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('kept')")
        #expect(try Command("migrate", "--database", newer).end == .exit(0))
        try DatabaseConnection(newer).execute("PRAGMA user_version = 1000")
        for (path, reason) in [(text, "must be a SQLite database"), (other, "another program"), (newer, "newer")] {
            let before = try Data(contentsOf: URL(fileURLWithPath: path))
            let more = ["serve": ["--listen", "127.0.0.1:0"], "backup": [directory.file("copy.db")]][subcommand] ?? []
            let child = try ChildProcess(Executable.holdfast, [subcommand, "--database", path] + more)
            #expect(child.wait() == .exit(subcommand == "serve" ? 78 : 1))
            #expect(child.errors.all.count == 1)
            #expect(child.errors.text.contains(path) && child.errors.text.contains(reason), "\(child.errors.text)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == before)
        }
        let files = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(Set(files) == ["text", "other.db", "newer.db"])
    }

    @Test func `A damaged database is refused`() throws {
        #expect(try Command("migrate", "--database", database).end == .exit(0))
        let file = try #require(FileHandle(forWritingAtPath: database))
        try file.seek(toOffset: 100)
        try file.write(contentsOf: Data(repeating: 0xFF, count: 3_000))
        try file.close()
        let refused = try Command("serve", "--listen", "127.0.0.1:0", "--database", database)
        #expect(refused.end == .exit(78))
        #expect(refused.errors.contains("damaged"), "\(refused.errors)")
    }

    @Test func `A database is exported, imported and backed up while a server uses it`() throws {
        let server = try ServerProcess(database: database)
        let lines = (10..<60).map { profile("user\($0)", ["1": "v\($0)"]) + "\n" }.joined()
        #expect(try server.request("POST", "/v1/profiles", lines)["imported"] == 50)

        let exported = try Command("export", "--database", database)
        #expect(exported.end == .exit(0))
        #expect(exported.output + "\n" == lines)

        let copy = directory.file("copy.db")
        #expect(try Command("backup", "--database", database, copy).end == .exit(0))
        #expect(try Command("export", "--database", copy).output == exported.output)
        #expect(try DatabaseConnection(copy).text("PRAGMA integrity_check") == "ok")
        let again = try Command("backup", "--database", database, copy)
        #expect(again.end == .exit(1))
        #expect(again.errors.contains(copy))

        let input = try directory.write(
            profile("zoe", ["1": "2"]) + "\nnonsense\n" + profile("user10", ["2": "3"]), to: "in")
        let imported = try Command("import", "--database", database, input: input)
        #expect(imported.end == .exit(1))
        #expect(imported.output == "imported 2, refused 1")
        #expect(imported.errors.contains("line 2"))
        #expect(try server.request("GET", "/v1/profiles/user10").text == profile("user10", ["1": "v10", "2": "3"]))
        #expect(try server.request("GET", "/v1/profiles/zoe").status == 200)
        let kept = try directory.write(profile("zoe", ["1": "other"]), to: "keep")
        #expect(try Command("import", "--keep", "--database", database, input: kept).end == .exit(0))
        #expect(try server.request("GET", "/v1/profiles/zoe").text == profile("zoe", ["1": "2"]))
    }

    @Test func `A check of a datafile warns about contextual bandits`() throws {
        let text = """
            {"version":"4","revision":"1","accountId":"1","projectId":"1","groups":[],"events":[],"attributes":[],
            "audiences":[],"featureFlags":[],"rollouts":[],"experiments":[{"id":"7","key":"checkout","layerId":"7",
            "status":"Running","audienceIds":[],"forcedVariations":{},"variations":[{"id":"71","key":"a"}],
            "cmab":{"attributeIds":[],"trafficAllocation":10000},"trafficAllocation":[]}]}
            """
        let check = try Command("datafile", "check", try directory.write(text, to: "bandit.json"))
        #expect(check.end == .exit(0) && check.output.contains("is usable"), "\(check.output)")
        #expect(check.errors.hasPrefix("warning: ") && check.errors.contains("'checkout'"), "\(check.errors)")
    }

    @Test func `A restart activates a datafile if it has changed, and undoes nothing that was changed since`()
        throws
    {
        func datafile(revision: String) throws -> [String] {
            let text = """
                {"version":"4","revision":"\(revision)","sdkKey":"shop","accountId":"1","projectId":"1","groups":[],"events":[],
                "attributes":[],"audiences":[],"featureFlags":[],"rollouts":[],"experiments":[{"id":"7","key":"checkout",
                "layerId":"7","status":"Running","audienceIds":[],"forcedVariations":{},"variations":[{"id":"71","key":"a"}],
                "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
                """
            return ["--datafile", try directory.write(text, to: "shop.json")]
        }
        func experiment(_ server: ServerProcess) throws -> [String?] {
            let response = try server.request("GET", "/v1/experiments/checkout")
            return [response["status"].string, response["revision"].string]
        }
        // How long assignments last belongs to the project: the file does not say it, and a new one does not undo it.
        func lifetime(_ server: ServerProcess, becomes next: String) throws -> String? {
            let former = try server.request("GET", "/v1/projects/shop")["assignment_ttl"].string
            #expect(try server.request("PUT", "/v1/projects/shop", #"{"assignment_ttl":"\#(next)"}"#).status == 200)
            return former
        }
        let first = try ServerProcess(database: database, datafile(revision: "7"))
        #expect(try experiment(first) == ["running", "7"])
        #expect(try first.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        first.stop()
        let second = try ServerProcess(database: database, datafile(revision: "7"))
        #expect(try experiment(second) == ["paused", "8"])
        #expect(try lifetime(second, becomes: "90d") == nil)
        second.stop()
        let third = try ServerProcess(database: database, datafile(revision: "9"))
        #expect(try experiment(third) == ["running", "9"])
        #expect(try lifetime(third, becomes: "30d") == "90d")
        #expect(try third.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        third.stop()
        let again = try ServerProcess(database: database, datafile(revision: "9"))
        #expect(try experiment(again) == ["paused", "11"])
        #expect(try lifetime(again, becomes: "7d") == "30d")
        again.stop()
        // One that is taken back is another one than the one that was activated last.
        let fourth = try ServerProcess(database: database, datafile(revision: "7"))
        #expect(try experiment(fourth) == ["running", "7"])
        #expect(try lifetime(fourth, becomes: "forever") == "7d")
        fourth.stop()
    }

    @Test func `An address that is taken is refused`() throws {
        let server = try ServerProcess(database: database)
        let refused = try Command("serve", "--listen", "127.0.0.1:\(server.port)", "--database", directory.file("b.db"))
        #expect(refused.end == .exit(1))
        #expect(refused.errors.contains("in use"), "\(refused.errors)")
    }
}
