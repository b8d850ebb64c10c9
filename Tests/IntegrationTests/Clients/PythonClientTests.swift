import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Public clients in Python: SDKs with Holdfast as their User Profile Service or sticky bucket service, clients of
/// Optimizely Agent, and the tool Schemathesis.
@Suite struct PythonClientTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `A user keeps the variation after the traffic allocation changed and the server was restarted`() throws {
        let database = directory.file("holdfast.db")
        let scripts = PythonPackages.scripts
        func decide(_ server: ServerProcess, _ datafile: String, _ phase: String) throws -> JSONValue {
            let output = try runAt(
                PythonPackages.interpreter,
                [
                    "\(scripts)/sticky_sdk.py", "http://127.0.0.1:\(server.port)", "\(scripts)/\(datafile)",
                    directory.file("state"), phase,
                ])
            return try JSONParser().parse(output)
        }

        var server = try ServerProcess(database: database)
        let first = try decide(server, "datafile-4.json", "first")
        #expect(first["decided"].integer ?? 0 > 100)
        #expect(first["saves"] == first["decided"])
        server.stop()

        server = try ServerProcess(database: database)
        let again = try decide(server, "datafile-4-changed.json", "again")
        #expect(again["kept"].integer ?? 0 > 100)
        #expect(again["moved"] == [])
        #expect(again["would_have_moved"].integer ?? 0 > 50)
        #expect(again["given_another"].integer ?? 0 > 0)
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The manifest of flags is one by the published schema of the OpenFeature CLI`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let definitions = #"""
            {"flags":[{"key":"banner","type":"boolean","description":"On the front page"},
            {"key":"text","type":"string","variations":[{"key":"a","value":"x"}]},
            {"key":"columns","type":"integer","variations":[{"key":"a","value":3}]},
            {"key":"rate","type":"double","variations":[{"key":"a","value":2.5}]},
            {"key":"whole","type":"double","variations":[{"key":"a","value":2}]},
            {"key":"theme","type":"json","variations":[{"key":"a","value":{"dark":true}}]}],
            "experiments":[{"key":"checkout","variations":["control","new"]}]}
            """#
        #expect(try server.request("PUT", "/v1/definitions", definitions).status == 200)
        let manifest = try server.request("GET", "/openfeature/v0/manifest").text
        let output = try runAt(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/openfeature_manifest.py", try directory.write(manifest, to: "manifest.json")])
        let expected =
            "banner:boolean checkout:string columns:integer rate:float text:string theme:object whole:float"
        #expect(output.trimmingCharacters(in: .whitespacesAndNewlines) == expected)
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `An SDK gives the winner of a concluded experiment, and afterwards everybody what they had`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/concluded_sdk.py", "http://127.0.0.1:\(server.port)"],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `An SDK asks for the variations of a bandit, and gets what Holdfast decides itself`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/bandit_sdk.py", "http://127.0.0.1:\(server.port)"],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `An SDK holds out whom Holdfast holds out, of all flags and of some`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/holdout_sdk.py", "http://127.0.0.1:\(server.port)"],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `People sign in with tokens of their identity provider, and forged ones are refused`() throws {
        let path = directory.file("sign-in")
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        let script = "\(PythonPackages.scripts)/sign_in.py"
        _ = try runAt(PythonPackages.interpreter, [script, "prepare", path])
        let tokens = try directory.write("admin on-call on-call-secret-0123456789\n", to: "tokens")
        let server = try ServerProcess(
            database: directory.file("holdfast.db"),
            [
                "--tokens-file", tokens, "--jwt-keys", "\(path)/keys.json", "--jwt-scopes", "\(path)/scopes",
                "--jwt-issuer", "https://id.example", "--jwt-audience", "holdfast", "--jwt-scopes-claim", "realm.roles",
            ])
        let child = try ChildProcess(
            PythonPackages.interpreter, [script, "check", path, "http://127.0.0.1:\(server.port)"],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The keys of an identity provider are fetched, kept while it is away, and no token is logged`() throws {
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/identity_provider.py", Executable.holdfast, directory.path],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The public client of the Model Context Protocol finds the tools, and changes in two steps`() throws {
        let tokens = try directory.write(
            "admin planner admin-secret-0123456789\nread looker read-secret-0123456789\n", to: "tokens")
        // The token of a change is accepted by every process.
        let servers = try (0..<2).map { _ in
            try ServerProcess(database: directory.file("holdfast.db"), ["--mcp", "--tokens-file", tokens])
        }
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/assistant.py"] + servers.map { "http://127.0.0.1:\($0.port)" },
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        for server in servers { server.stop() }
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `A client that is generated from the description has every route, and types for all of it`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/generated_client.py", "http://127.0.0.1:\(server.port)", directory.path],
            environment: ["PYTHONDONTWRITEBYTECODE": "1", "PATH": ProcessInfo.processInfo.environment["PATH"] ?? ""])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    // MARK: GrowthBook

    /// The manual's adapter between GrowthBook and two servers on one database.
    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `GrowthBook's users stay in their variations, and app servers that save at once lose nothing`() throws {
        let adapter = try #require(ExampleSection.all.lazy.compactMap { $0.scripts["sticky_buckets.py"] }.first)
        _ = try directory.write(adapter, to: "sticky_buckets.py")
        let database = directory.file("holdfast.db")
        let servers = try (0..<2).map { _ in try ServerProcess(database: database) }
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/growthbook_sticky.py"] + servers.map { "http://127.0.0.1:\($0.port)" },
            environment: ["PYTHONPATH": directory.path, "PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        for server in servers { server.stop() }
    }

    /// The manual's class for the JavaScript SDK, called as the SDK calls it.
    @Test(.enabled(if: Tool.node.isExpected, "node is not installed"))
    func `The JavaScript adapter of the manual keeps sticky buckets of two app servers`() throws {
        let adapter = try #require(ExampleSection.all.lazy.compactMap { $0.scripts["sticky-buckets.mjs"] }.first)
        _ = try directory.write(adapter, to: "sticky-buckets.mjs")
        let script = try directory.write(
            #"""
            import assert from "node:assert/strict";
            import { HoldfastStickyBuckets } from "./sticky-buckets.mjs";

            const [first, second] = process.argv.slice(2).map((url) => new HoldfastStickyBuckets(url));
            const doc = (variation) => ({ attributeName: "id", attributeValue: "ann/ä", assignments: { e__0: variation } });
            const [one, other] = [doc("a"), doc("b")];
            await first.saveAssignments(one);
            await second.saveAssignments(other);
            assert.deepEqual(other, one);
            // A logged-out user has no id: the SDK sends the attribute with an empty value.
            assert.deepEqual(await second.getAllAssignments({ id: "", deviceId: "d" }), {});
            assert.deepEqual(await second.getAllAssignments({ id: "ann/ä", deviceId: "" }), { "id||ann/ä": one });
            assert.deepEqual(await first.getAssignments("id", "ann/ä"), one);
            assert.equal(await first.getAssignments("id", "bob"), null);
            // What is refused is told, and does not end the app.
            const told = [];
            console.warn = (...parts) => told.push(parts.join(" "));
            await first.saveAssignments({ ...one, assignments: [] });
            assert.match(told.join(), /Holdfast responded 400/);
            """#, to: "check.mjs")
        let database = directory.file("holdfast.db")
        let servers = try (0..<2).map { _ in try ServerProcess(database: database) }
        let child = try ChildProcess(Tool.node.path(), [script] + servers.map { "http://127.0.0.1:\($0.port)" })
        let end = child.wait()
        #expect(end == .exit(0), "\(child.errors.text)")
        for server in servers { server.stop() }
    }

    // MARK: A server that is killed

    /// The manual's examples in Python, while the server is away and after it is back.
    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `No example in Python ends its app, and none loses an event, when the server is killed`() throws {
        for name in ["sticky_buckets.py", "statsig_storage.py"] {
            let adapter = try #require(ExampleSection.all.lazy.compactMap { $0.scripts[name] }.first)
            _ = try directory.write(adapter, to: name)
        }
        let section = try #require(ExampleSection.all.first { $0.file == "OptimizelySDK.md" && $0.title == "Python" })
        _ = try directory.write(try #require(section.scripts["shop.py"]), to: "shop.py")
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/killed_server.py", Executable.holdfast, directory.path],
            environment: ["PYTHONPATH": directory.path, "PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
    }

    /// The manual's examples in JavaScript, whose promises nobody awaits. What stands for the SDK does as its documentation
    /// says: a dispatcher whose promise fails, or has another status than 2xx, is called again.
    @Test(.enabled(if: Tool.node.isExpected, "node is not installed"))
    func `No example in JavaScript ends its app, and none loses an event, when the server is killed`() throws {
        let adapter = try #require(ExampleSection.all.lazy.compactMap { $0.scripts["sticky-buckets.mjs"] }.first)
        _ = try directory.write(adapter, to: "sticky-buckets.mjs")
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/OptimizelySDK.md", encoding: .utf8)
        let block = try #require(article.firstMatch(of: #/```js\n((?:.|\n)*?)```/#)?.output.1)
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let port = server.port
        let example = String(block).replacing("https://HOST", with: "http://127.0.0.1:\(port)")
        let script = try directory.write(
            #"""
            import assert from "node:assert/strict";
            import { HoldfastStickyBuckets } from "./sticky-buckets.mjs";

            const cache = new Map(), headers = { "Content-Type": "application/json" };
            const createPollingProjectConfigManager = (options) => options, createInstance = (options) => options;
            const createBatchEventProcessor = ({ eventDispatcher, maxRetries }) => ({
              async process(event) {
                for (let attempt = 0; attempt <= maxRetries; attempt++) {
                  const status = await eventDispatcher.dispatchEvent(event).then((r) => r.statusCode, () => 0);
                  if (status >= 200 && status < 300) return true;
                  await new Promise((resolve) => setTimeout(resolve, Math.min(1000 * 2 ** attempt, 32_000)));
                }
                return false;
              },
            });
            console.warn = () => {};
            let rejections = 0;
            process.on("unhandledRejection", () => { rejections += 1; });
            \#(example)
            const buckets = new HoldfastStickyBuckets(`http://127.0.0.1:${process.argv[2]}`);
            const profile = { user_id: "ann", experiment_bucket_map: { 1: { variation_id: "a" } } };
            client.userProfileService.save(profile);
            assert.equal(client.userProfileService.lookup("ann"), null);
            buckets.saveAssignments({ attributeName: "id", attributeValue: "ann", assignments: { e__0: "a" } });
            assert.deepEqual(await buckets.getAllAssignments({ id: "ann" }), {});
            assert.equal(await buckets.getAssignments("id", "ann"), null);
            const uuid = "5ad80e2e-a7a5-4a7e-9f5b-3f3a1c6e8f10";
            const events = [{ key: "purchase", uuid, timestamp: Date.now() }];
            const params = { visitors: [{ visitor_id: "ann", snapshots: [{ events }] }] };
            const sent = client.eventProcessor.process({ params });
            console.log("away");
            assert.equal(await sent, true);
            assert.equal(rejections, 0);
            """#, to: "check.mjs")
        server.child.send(SIGKILL)
        _ = server.child.wait()
        let child = try ChildProcess(Tool.node.path(), [script, "\(port)"])
        #expect(child.output.first { $0.contains("away") } != nil, "\(child.errors.text)")
        let restarted = try ServerProcess(
            database: directory.file("holdfast.db"), ["--listen", "127.0.0.1:\(port)"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.errors.text)")
        let events = try restarted.request("GET", "/v1/profiles/ann/events")["events"].array
        #expect(events?.map { $0["goal"] } == ["purchase"])
        restarted.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The SDK decides flags and experiments of the API as the server does`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let output = try runAt(
            PythonPackages.interpreter, ["\(PythonPackages.scripts)/flags_sdk.py", "http://127.0.0.1:\(server.port)"])
        let result = try JSONParser().parse(output)
        #expect(result["count"] == 0, "\(result["differences"])")
        #expect(result["compared"].integer ?? 0 > 10_000)
        for reason in ["targeted", "experiment", "sticky", "default", "disabled"] {
            #expect(result["reasons"][reason].integer ?? 0 > 0 || reason == "experiment", "\(reason)")
        }
        server.stop()
    }

    // MARK: Optimizely Agent

    private func runScript(_ name: String, _ arguments: String...) throws {
        let script = "\(PythonPackages.scripts)/\(name)"
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let child = try ChildProcess(
            PythonPackages.interpreter, [script, "http://127.0.0.1:\(server.port)"] + arguments)
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        server.stop()
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `A client of the Agent finds every endpoint as it knows it`() throws {
        try runScript("agent_client.py")
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The reference's vectors are decided alike over HTTP`() throws {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        try runScript("agent_vectors.py", tests.appendingPathComponent("BucketingTests/Vectors").path)
    }

    // MARK: Other protocols

    private static let secrets = ["admin", "client", "read"].map { "\($0)-secret-0123456789" }

    /// Runs a script with the addresses of two servers and the secrets of tokens of three scopes.
    ///
    /// - Parameters:
    ///   - sharing: whether the servers have one database.
    ///   - manual: the name of a script of the manual that it imports.
    private func runScript(_ name: String, sharing: Bool, manual: String? = nil) throws {
        let tokens = Self.secrets.map { "\($0.split(separator: "-")[0]) \($0.prefix(5)) \($0)\n" }.joined()
        let options = ["--tokens-file", try directory.write(tokens, to: "tokens")]
        let servers = try ["one.db", sharing ? "one.db" : "two.db"].map {
            try ServerProcess(database: directory.file($0), options)
        }
        let script = "\(PythonPackages.scripts)/\(name)"
        let addresses = servers.map { "http://127.0.0.1:\($0.port)" }
        if let manual {
            let text = try #require(ExampleSection.all.lazy.compactMap { $0.scripts[manual] }.first)
            _ = try directory.write(text, to: manual)
        }
        let child = try ChildProcess(
            PythonPackages.interpreter, [script] + addresses + Self.secrets,
            environment: ["PYTHONPATH": directory.path, "PYTHONDONTWRITEBYTECODE": "1"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        for server in servers { server.stop() }
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The SDK polls its datafile and sends its events here, with the results of native events`() throws {
        try runScript("optimizely_sdk.py", sharing: false)
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The provider of OpenFeature evaluates every type, and its users keep their variations`() throws {
        try runScript("openfeature_provider.py", sharing: true)
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The libraries of Segment and RudderStack send views and goals`() throws {
        try runScript("segment_libraries.py", sharing: false)
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `GrowthBook's SDK evaluates remotely, tracks what it uses, and its users keep their variations`() throws {
        try runScript("growthbook_remote.py", sharing: true)
    }

    /// The manual's class between Statsig and two servers on one database.
    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `Statsig's users keep their groups, until they are erased`() throws {
        try runScript("statsig_sticky.py", sharing: true, manual: "statsig_storage.py")
    }

    // MARK: Schemathesis

    /// Sends what the published description allows and what it forbids, and compares the responses with it.
    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The server answers as it is described to, whatever it is sent`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"), ["--mcp"])
        let address = "http://127.0.0.1:\(server.port)"
        let scripts = PythonPackages.scripts
        // It leaves notes where it is run.
        let child = try ChildProcess(
            try #require(Executable.find("env")),
            [
                "--chdir", directory.path, "\(PythonPackages.programs)/schemathesis", "--config-file",
                "\(scripts)/schemathesis.toml", "run", "\(address)/openapi.json", "--url", address,
            ],
            environment: [
                "PYTHONPATH": scripts, "PYTHONDONTWRITEBYTECODE": "1", "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            ])
        #expect(child.wait() == .exit(0), "\(child.output.text.suffix(8_000)) \(child.errors.text.suffix(2_000))")
        server.stop()
    }
}
