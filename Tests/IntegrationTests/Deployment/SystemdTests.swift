import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// What the server reports to systemd, and the units.
@Suite struct SystemdTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func server(
        _ receiver: NotifyReceiver, _ options: [String] = [], environment: [String: String] = [:]
    ) throws -> ServerProcess {
        try ServerProcess(
            database: directory.file("holdfast.db"), options,
            environment: environment.merging(["NOTIFY_SOCKET": receiver.name]) { $1 })
    }

    @Test(arguments: [false, true])
    func `The server is ready when its port answers, and reports that it stops`(isAbstract: Bool) throws {
        let receiver = try NotifyReceiver(isAbstract: isAbstract)
        let server = try server(receiver, ["--shutdown-delay", "100ms", "--shutdown-timeout", "20s"])
        #expect(receiver.next() == ["READY=1", "STATUS=serving at http://127.0.0.1:\(server.port)"])
        #expect(try server.request("GET", "/livez").status == 200)
        server.stop()
        // 100 ms, 20 s, and a minute for the rest.
        #expect(receiver.next() == ["STOPPING=1", "STATUS=shutting down", "EXTEND_TIMEOUT_USEC=80100000"])
        #expect(receiver.next(milliseconds: 1) == nil)
    }

    @Test func `Tokens that are read again are reported, also if the file is wrong`() throws {
        let tokens = try directory.write("admin a 0123456789abcdef\n", to: "tokens")
        let receiver = try NotifyReceiver()
        let server = try server(receiver, ["--tokens-file", tokens])
        let ready = receiver.next()
        server.child.send(SIGHUP)
        let reloading = try #require(receiver.next())
        #expect(reloading.first == "RELOADING=1")
        #expect(try #require(reloading.last).wholeMatch(of: #/MONOTONIC_USEC=[1-9]\d+/#) != nil)
        #expect(receiver.next() == ready)
        _ = try directory.write("nonsense\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(receiver.next()?.first == "RELOADING=1")
        #expect(
            receiver.next() == ["READY=1", "STATUS=the token file was not read; the former tokens stay active"])
        server.stop()
    }

    @Test func `Signs of life come while all event loops run, and end when one hangs`() throws {
        let database = directory.file("holdfast.db")
        let disk = try FaultyDisk(under: database, tracksWrites: false, seed: 1)
        do {
            let server = try ServerProcess(database: database)
            #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
            server.stop()
        }
        let receiver = try NotifyReceiver()
        let server = try server(
            receiver, ["--cache-size", "0", "--event-loops", "2"],
            environment: disk.environment.merging(["WATCHDOG_USEC": "200000"]) { $1 })
        for _ in 0..<3 { #expect(receiver.next(with: "WATCHDOG=1") != nil) }
        disk[.readsHang] = 1
        let client = try server.client()
        try client.send(HTTPClient.head("GET", "/v1/profiles/ada"))
        let deadline = ContinuousClock.now + .seconds(60)
        // Twenty times as long as between two of them.
        while receiver.next(milliseconds: 2_000) != nil, .now < deadline {}
        #expect(.now < deadline)
        disk[.readsHang] = 0
        #expect(receiver.next(with: "WATCHDOG=1") != nil)
        #expect(try client.receive().text == profile("ada", ["11": "1"]))
        server.stop()
    }

    @Test func `A watchdog of another process is left to it`() throws {
        let receiver = try NotifyReceiver()
        let server = try server(receiver, environment: ["WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"])
        #expect(receiver.next()?.first == "READY=1")
        server.stop()
        #expect(receiver.next()?.first == "STOPPING=1")
    }

    @Test func `A socket that cannot be meant stops the start, and one that nobody listens on does not`() throws {
        let refused = try Command(
            "serve", "--listen", "127.0.0.1:0", "--database", directory.file("other.db"),
            environment: ["NOTIFY_SOCKET": "vsock:2:1"])
        #expect(refused.end == .exit(1))
        #expect(refused.errors.contains("NOTIFY_SOCKET must be an absolute path, or '@' and a name"))
        let path = directory.file("nobody")
        let server = try ServerProcess(
            database: directory.file("holdfast.db"), environment: ["NOTIFY_SOCKET": path])
        #expect(server.child.errors.first { $0.contains("systemd was not notified") } != nil)
        server.stop()
    }

    @Test(
        .enabled(if: Tool.systemdAnalyze.isExpected, "systemd is not installed"),
        arguments: [
            ("holdfast.service", "/usr/bin/holdfast"), ("holdfast-backup.service", "/usr/lib/holdfast/backup"),
        ])
    func `The units are well-formed and confined`(unit: String, program: String) throws {
        var text = try DeploymentFile.text(unit)
        #expect(text.contains("ExecStart=\(program)"))
        try Tool.systemdAnalyze.run("security", "--offline=true", "--threshold=15", try directory.write(text, to: unit))
        // The program must exist.
        text = text.replacing("ExecStart=\(program)", with: "ExecStart=\(Executable.holdfast)")
        let path = try directory.write(text, to: unit)
        let child = try ChildProcess(Tool.systemdAnalyze.path(), ["verify", "--man=no", path])
        #expect(child.wait() == .exit(0), "\(child.errors.text)")
        #expect(child.errors.text.isEmpty)
    }

    @Test func `systemd does not start a wrongly configured server again, but one that failed otherwise`() throws {
        let unit = try DeploymentFile.text("holdfast.service")
        let final = try #require(unit.firstMatch(of: #/\nRestartPreventExitStatus=([\d ]+)\n/#)?.output.1)
            .split(separator: " ").compactMap { Int32($0) }
        let listening = try ServerProcess(database: directory.file("holdfast.db"))
        let free = ["HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_DATABASE": directory.file("other.db")]
        let wrong: [([String], [String: String])] = [
            (["--no-such-option"], [:]), (["--event-loops"], [:]), (["--event-loops", "0"], [:]),
            ([], ["HOLDFAST_IDLE_TIMEOUT": "5"]), ([], ["HOLDFAST_TOKENS_FILE": directory.file("none")]),
            ([], ["HOLDFAST_LISTEN": "0.0.0.0:0"]), (["--listen", "8080"], [:]),
            (["--datafile", directory.file("none")], [:]),
            (["--datafile", try directory.write("{}", to: "datafile.json")], [:]),
            (["--datafile", try directory.write("text", to: "text")], [:]),
            (["--database", directory.file("text")], [:]), ([], ["HOLDFAST_DATABASE": "postgresql://[::1/x"]),
        ]
        for (options, variables) in wrong {
            let refused = try ChildProcess(
                Executable.holdfast, ["serve"] + options, environment: free.merging(variables) { $1 })
            let end = refused.wait()
            #expect(final.contains { end == .exit($0) }, "\(options) \(variables): \(end)")
        }
        for variables in [
            ["HOLDFAST_LISTEN": "127.0.0.1:\(listening.port)"], ["HOLDFAST_DATABASE": directory.file("none/h.db")],
            ["HOLDFAST_DATABASE": "postgresql://127.0.0.1:1/x"],
        ] {
            let failed = try Command("serve", environment: free.merging(variables) { $1 })
            #expect(failed.end == .exit(1), "\(variables)")
        }
        listening.stop()
    }

    @Test(.enabled(if: Tool.systemdAnalyze.isExpected, "systemd is not installed"))
    func `The timer runs every day`() throws {
        #expect(try DeploymentFile.text("holdfast-backup.timer").contains("OnCalendar=daily\n"))
        try Tool.systemdAnalyze.run("calendar", "daily")
    }

    @Test func `Every option in the environment file and in the compose file exists`() throws {
        let help = try runAt(Executable.holdfast, ["serve", "--help"])
        let pods = ["sqlite/statefulset.yaml", "postgresql/deployment.yaml"].map { "kubernetes/\($0)" }
        for name in ["holdfast.env", "compose.yaml", "compose.postgresql.yaml", "Dockerfile"] + pods {
            let text = try DeploymentFile.text(name)
            let variables = text.matches(of: #/\bHOLDFAST_[A-Z_]+/#).map { String($0.output) }
            #expect(!variables.isEmpty)
            for variable in variables {
                let option = "--" + variable.dropFirst("HOLDFAST_".count).lowercased().replacing("_", with: "-")
                #expect(help.contains("\(option) "), "\(name): \(variable)")
            }
        }
    }
}
