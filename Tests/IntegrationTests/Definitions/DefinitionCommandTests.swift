import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// `holdfast plan`, `apply`, `pull` and `lint`: definitions in files, against real servers.
@Suite struct DefinitionCommandTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private static let definitions = """
        attributes:
          - name: country
            type: country
        segments:
          - name: nordic
            conditions: {name: country, match: in, value: [no, se]}
        metrics:
          - {key: orders, kind: conversion, goal: order}
        ---
        experiments:
          - key: checkout
            variations: [control, new]
            traffic: 40
            metrics: {primary: [orders]}
        flags:
          - key: banner
            type: boolean
            rules:
              - audience: [{segment: nordic}]
                experiment:
                  weights: {off: 1, on: 1}
        """

    private func start(_ database: String, _ options: [String] = []) throws -> ServerProcess {
        try ServerProcess(database: directory.file(database), options)
    }

    private func run(_ server: ServerProcess?, _ arguments: String..., token: String? = nil) throws -> Command {
        var environment: [String: String] = [:]
        if let server { environment["HOLDFAST_URL"] = "http://127.0.0.1:\(server.port)" }
        if let token { environment["HOLDFAST_TOKEN"] = token }
        return try Command(arguments, environment: environment)
    }

    @Test func `A plan says what would change and exits with 2, and after it was applied nothing changes`() throws {
        let server = try start("a.db")
        let file = try directory.write(Self.definitions, to: "all.yaml")
        let plan = try run(server, "plan", "-f", file)
        #expect(plan.end == .exit(2), "\(plan.errors)")
        #expect(
            plan.output.contains("+ experiment checkout\n") && plan.output.contains("\n5 to create"), "\(plan.output)")
        let applied = try run(server, "apply", "-f", file)
        #expect(applied.end == .exit(0) && applied.output.contains("5 created, 0 changed"), "\(applied)")
        for command in ["plan", "apply"] {
            let again = try run(server, command, "-f", file)
            #expect(again.end == .exit(0) && again.output == "nothing to change", "\(again)")
        }
        let segment = try server.client().request("GET", "/v1/segments/nordic")
        #expect(segment["conditions"]["value"] == ["no", "se"])
    }

    @Test func `What files say of the project is planned, applied, pulled and checked`() throws {
        let server = try start("a.db")
        let file = try directory.write("project:\n  assignment_ttl: 90d\n", to: "project.yaml")
        let lint = try run(nil, "lint", "-f", file)
        #expect(lint.end == .exit(0) && lint.output == "usable: project", "\(lint)")
        let plan = try run(server, "plan", "-f", file)
        #expect(plan.end == .exit(2), "\(plan)")
        #expect(plan.output.contains("~ project default\n    assignment_ttl: none -> \"90d\"\n"), "\(plan.output)")
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        #expect(try run(server, "plan", "-f", file).output == "nothing to change")
        let printed = try run(server, "pull").output
        #expect(printed.hasPrefix("project:\n  assignment_ttl: \"90d\""), "\(printed)")
        let folder = directory.file("pulled")
        #expect(try run(server, "pull", "-o", folder).end == .exit(0))
        #expect(try run(server, "plan", "-f", folder).output == "nothing to change")
        // A project that says nothing any more must not be defined by the file of a former pull.
        #expect(
            try server.client().request("PUT", "/v1/projects/default", #"{"assignment_ttl":null}"#).status == 200)
        #expect(try run(server, "pull", "-o", folder).end == .exit(0))
        #expect(try run(server, "plan", "-f", folder).output == "nothing to change")
        let wrong = try directory.write("project: {assignment_ttl: 90}\n---\nproject: {}\n", to: "wrong.yaml")
        let refused = try run(nil, "lint", "-f", wrong)
        #expect(refused.end == .exit(1), "\(refused)")
        #expect(
            refused.errors.contains("wrong.yaml:3: the project is described already, at ")
                && refused.errors.contains("wrong.yaml:1"), "\(refused.errors)")
        let text = try directory.write("project:\n  assignment_ttl: soon\n", to: "soon.yaml")
        let soon = try run(nil, "lint", "-f", text)
        #expect(
            soon.errors.contains("soon.yaml:2: /project/assignment_ttl: `assignment_ttl` must be a time"), "\(soon)")
    }

    @Test func `A traffic below 1 is asked about`() throws {
        let text = try directory.write(
            "experiments:\n  - key: search\n    variations: [a, b]\n    traffic: 0.2\n", to: "fraction.yaml")
        let lint = try run(nil, "lint", "-f", text)
        #expect(lint.end == .exit(0), "\(lint)")
        #expect(lint.errors.contains("fraction.yaml:4: "), "\(lint.errors)")
        #expect(
            lint.errors.contains("`traffic` is a percentage: 0.2 is 0.2% of the users; if 20% are meant, write 20"),
            "\(lint.errors)")
        let running = try start("fraction.db")
        let server = try running.client()
        let body = #"{"variations":["a","b"],"traffic":0.2}"#
        for answer in [
            try server.request("POST", "/v1/experiments/search/preview", body),
            try server.request("PUT", "/v1/experiments/search", body),
        ] {
            #expect(answer["warnings"].array?.first?["code"] == "traffic_below_one", "\(answer.text)")
            #expect(answer["warnings"].array?.first?["pointer"] == "/traffic", "\(answer.text)")
        }
        let shown = try server.request("GET", "/v1/experiments/search")
        #expect(shown["traffic"] == 0.2 && shown["warnings"].isNull)
        #expect(try server.request("PUT", "/v1/experiments/search", #"{"traffic":1}"#)["warnings"].isNull)
        running.stop()
    }

    @Test func `Webhooks in files are checked, planned, applied, pulled and pruned, and no secret is in them`() throws {
        let secrets = directory.file("secrets")
        try FileManager.default.createDirectory(atPath: secrets, withIntermediateDirectories: true)
        let (admin, robot) = ("ann-secret-0123456789", "robot-secret-0123456789")
        let tokens = try directory.write("admin ann \(admin)\ndefinitions robot \(robot)\n", to: "some.tokens")
        let server = try start("a.db", ["--tokens-file", tokens, "--webhook-secrets", secrets])
        let file = try directory.write(
            """
            webhooks:
              - key: ops
                url: https://ops.example/holdfast
                events: ["experiment.*"]
                secret_file: ops
              - key: chat
                url: https://chat.example/hook
                format: slack
                sdk_key: default
            """, to: "webhooks.yaml")
        #expect(try run(nil, "lint", "-f", file).output == "usable: 2 webhooks")
        let blind = try run(server, "plan", "-f", file, token: robot)
        #expect(blind.end == .exit(0) && blind.output == "nothing to change", "\(blind)")
        #expect(blind.errors.contains("webhooks were not compared"), "\(blind)")
        let plan = try run(server, "plan", "-f", file, token: admin)
        #expect(plan.end == .exit(2) && plan.output.contains("+ webhook chat\n"), "\(plan)")
        let applied = try run(server, "apply", "-f", file, token: admin)
        #expect(applied.end == .exit(0) && applied.output.contains("2 created"), "\(applied)")
        #expect(applied.errors.contains("POST /v1/webhooks/chat/rotate") && !applied.errors.contains("ops/rotate"))
        let folder = directory.file("pulled")
        #expect(try run(server, "pull", "-o", folder, token: admin).end == .exit(0))
        let pulled = try String(contentsOfFile: "\(folder)/webhooks.yaml", encoding: .utf8)
        #expect(pulled.contains("secret_file: ops\n") && !pulled.contains("whsec_"), "\(pulled)")
        for path in [file, folder] {
            let again = try run(server, "apply", "-f", path, token: admin)
            #expect(again.end == .exit(0) && again.output == "nothing to change" && again.errors.isEmpty, "\(again)")
        }
        let empty = try directory.write("webhooks: []\n", to: "empty.yaml")
        let pruned = try run(server, "apply", "-f", empty, "--prune", "--max-removals", "1", token: admin)
        #expect(pruned.end == .exit(0) && pruned.output.hasPrefix("- webhook chat\n"), "\(pruned)")
        let held = try directory.write(
            "webhooks:\n  - key: ops\n    url: https://ops.example/\n    secret: whsec_AAAA\n", to: "held.yaml")
        let refused = try run(nil, "lint", "-f", held)
        #expect(refused.end == .exit(1) && refused.errors.contains("held.yaml:4: "), "\(refused)")
    }

    @Test func `Applying a change of a running experiment that needs a second person exits with 3`() throws {
        let tokens = try directory.write(
            "admin ann ann-secret-0123456789\nadmin bob bob-secret-0123456789\n", to: "people.tokens")
        let server = try start("a.db", ["--tokens-file", tokens, "--approvals", "2"])
        let file = try directory.write(Self.definitions, to: "all.yaml")
        let ann = "ann-secret-0123456789"
        #expect(try run(server, "apply", "-f", file, token: ann).end == .exit(0))
        let edited = try directory.write(Self.definitions.replacing("traffic: 40", with: "traffic: 50"), to: "new.yaml")
        let held = try run(server, "apply", "-f", edited, token: ann)
        #expect(held.end == .exit(3), "\(held)")
        let end = try #require(held.output.firstRange(of: "POST ")?.upperBound, "\(held)")
        let approved = try server.client().request(
            "POST", String(held.output[end...]), nil, token: "bob-secret-0123456789")
        #expect(approved.status == 200, "\(approved.text)")
        let again = try run(server, "apply", "-f", edited, token: ann)
        #expect(again.end == .exit(0) && again.output == "nothing to change", "\(again)")
    }

    @Test func `What would move enrolled users is refused unless it is allowed, and the plan counts them`() throws {
        let server = try start("a.db")
        let file = try directory.write(Self.definitions, to: "all.yaml")
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        let client = try server.client()
        let lines = (0..<30).map { #"{"user_id":"u\#($0)","experiment":"checkout"}"# }
        let assigned = try client.request("POST", "/v1/assign", "[\(lines.joined(separator: ","))]")
        let moved = (assigned.json.array ?? []).filter { $0["variation_key"] == "new" }.count
        let edited = try directory.write(
            Self.definitions.replacing("[control, new]", with: "[control]"), to: "edited.yaml")
        let plan = try run(server, "plan", "-f", edited)
        #expect(plan.output.contains("\n\(moved) who are enrolled would get another variation"), "\(plan.output)")
        let refused = try run(server, "apply", "-f", edited)
        #expect(refused.end == .exit(1) && refused.errors.contains("--moves allow"), "\(refused)")
        #expect(try client.request("GET", "/v1/experiments/checkout")["variations"].array?.count == 2)
        #expect(try run(server, "apply", "-f", edited, "--moves", "allow").end == .exit(0))
        #expect(try client.request("GET", "/v1/experiments/checkout")["variations"].array?.count == 1)
    }

    @Test func `What one server has is pulled and applied to another one, which then decides the same`() throws {
        let (staging, production) = (try start("staging.db"), try start("production.db"))
        let file = try directory.write(Self.definitions, to: "all.yaml")
        #expect(try run(staging, "apply", "-f", file).end == .exit(0))
        let edited = Self.definitions.replacing("traffic: 40", with: "traffic: 70")
        #expect(try run(staging, "apply", "-f", try directory.write(edited, to: "all.yaml")).end == .exit(0))
        let pulled = directory.file("pulled")
        #expect(try run(staging, "pull", "-o", pulled).end == .exit(0))
        #expect(
            try run(nil, "lint", "-f", pulled).output
                == "usable: 1 attribute, 1 segment, 1 metric, 1 experiment, 1 flag")
        #expect(try run(production, "apply", "-f", pulled).end == .exit(0))
        #expect(try run(production, "pull").output == run(staging, "pull").output)
        #expect(try run(production, "plan", "--prune", "-f", pulled).end == .exit(0))
        let clients = [try staging.client(), try production.client()]
        let ids = try clients.map { try $0.request("GET", "/v1/experiments/checkout")["id"] }
        #expect(ids[0] == ids[1])
        for page in 0..<10 {
            let users = (0..<100).map { #"{"user_id":"user\#(page * 100 + $0)","experiment":"checkout"}"# }
            let decisions = try clients.map { client in
                try client.request("POST", "/v1/assign", "[\(users.joined(separator: ","))]").json.array?.map {
                    [$0["experiment_id"], $0["variation_id"]]
                }
            }
            #expect(decisions[0]?.count == 100 && decisions[0] == decisions[1])
        }
    }

    @Test func `Faults are told with file, line and pointer, and nothing is applied`() throws {
        let server = try start("a.db")
        let first = try directory.write("experiments:\n  - key: a\n    variations: [x]\n", to: "a.yaml")
        let second = try directory.write(
            """
            experiments:
              - key: a
                variations: [x]
              - key: 5
                variations: [x]
            metrics:
              - key: m
                kind: conversion
                goal: [a]
              - key: yes
                kind: count
                goal: g
            """, to: "b.yaml")
        let wrong = try run(server, "apply", "-f", first, "-f", second)
        #expect(wrong.end == .exit(1))
        #expect(wrong.errors.contains("\(second):2: the experiment 'a' is defined already, at \(first):2"))
        #expect(wrong.errors.contains("\(second):4: /experiments/1/key: `key` must be a string; got a number"))
        let values = try directory.write(
            "flags:\n  - key: f\n    type: boolean\n    variations:\n      - {key: on, value: yes}\n", to: "c.yaml")
        for server in [server, nil] {
            let refused = try run(server, server == nil ? "lint" : "apply", "-f", values)
            #expect(refused.end == .exit(1))
            #expect(
                refused.errors.contains(
                    "\(values):5: /flags/0/variations/0/value: the value of a flag of the type boolean must be true or false; got a string"
                ), "\(refused.errors)")
        }
        let unreadable: [(String, String)] = [
            ("experiments:\n  - key: a\n    key: b\n", ":3: a key must occur once; 'key' is there already in line 2"),
            ("experiments: [", ":2: "), ("experiment: []\n", "did you mean `experiments`?"),
            ("experiments:\n  - &a {key: x}\n  - *b\n", ":3: no value before has the anchor 'b'"),
            ("a: &a [1]\nb: &b [*a, *a]\nc: !int 5\n", ":3: a value must have no tag but !!str"),
        ]
        for (text, fault) in unreadable {
            let refused = try run(nil, "lint", "-f", try directory.write(text, to: "d.yaml"))
            #expect(refused.end == .exit(1) && refused.errors.contains(fault), "\(refused.errors)")
        }
        #expect(try server.client().request("GET", "/v1/experiments/a").status == 404)
    }

    @Test func `A server that cannot be reached, or refuses the token, is an error of one line`() throws {
        let tokens = try directory.write("read ci first-secret-0001\nadmin cd second-secret-0002\n", to: "tokens")
        let server = try start("a.db", ["--tokens-file", tokens])
        let file = try directory.write(#"{"experiments":[{"key":"a","variations":["x"]}]}"#, to: "all.json")
        for token in ["first-secret-0001", "wrong-secret"] {
            let refused = try run(server, "apply", "-f", file, token: token)
            #expect(refused.end == .exit(1) && refused.errors.split(separator: "\n").count == 1, "\(refused.errors)")
        }
        #expect(try run(server, "apply", "-f", file, token: "second-secret-0002").end == .exit(0))
        #expect(try run(server, "pull", token: "first-secret-0001").output.contains("key: a"))
        server.stop()
        let gone = try run(server, "plan", "-f", file)
        #expect(gone.end == .exit(1) && gone.errors.contains("does not respond"), "\(gone.errors)")
    }

    @Test func `What is decided for everybody and still in code is found, and so is what no code names`() throws {
        let definitions = try directory.write(
            """
            experiments:
              - {key: running, variations: [a, b]}
              - {key: over, variations: [a, b], status: concluded, conclusion: {winner: b}}
              - {key: past, variations: [a], status: archived}
              - {key: unused, variations: [a, b]}
            flags:
              - {key: dark-mode, type: boolean, enabled: false}
              - {key: full, type: boolean}
              - {key: tested, type: boolean, rules: [{experiment: {}}]}
              - {key: everywhere, type: boolean, rules: [{variation: on}]}
              - key: nearly
                type: boolean
                rules: [{audience: {name: a, value: 1}, variation: off}, {variation: on}]
              - {key: same, type: boolean, rules: [{variation: off, traffic: 10}]}
              - {key: partly, type: boolean, rules: [{variation: on, traffic: 10}]}
            """, to: "definitions.yaml")
        let code = directory.file("code")
        try FileManager.default.createDirectory(atPath: code + "/web/node_modules", withIntermediateDirectories: true)
        for (file, text) in [
            ("a.swift", "let a = f(\"running\")\nlet b = f(\"over\"), f(\"past\")\nprint(\"tested\")"),
            ("b.swift", "f(\"everywhere\") + f(\"nearly\")\nf(\"same\") + f(\"partly\")"),
            ("web/b.ts", "flag('dark-mode'); over; `full`; 'over'"), ("web/node_modules/c.js", "'unused'"),
        ] {
            try text.write(toFile: "\(code)/\(file)", atomically: true, encoding: .utf8)
        }
        try FileManager.default.createSymbolicLink(atPath: code + "/loop", withDestinationPath: code)
        let stale = try run(nil, "stale", "--code", code, "-f", definitions)
        #expect(stale.end == .exit(2), "\(stale.errors)")
        let expected = """
            dark-mode: off
                CODE/web/b.ts:1
            everywhere: everybody gets 'on'
                CODE/b.swift:1
            full: without rules, everybody gets 'off'
                CODE/web/b.ts:1
            over: concluded, everybody gets 'b'
                CODE/a.swift:2
                CODE/web/b.ts:1
            past: archived
                CODE/a.swift:2
            same: everybody gets 'off'
                CODE/b.swift:2
            unused: no code names it
            """
        #expect(stale.output == expected.replacing("CODE", with: code))
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `The schema admits what is pulled, and refuses a member that is misspelt`() throws {
        let server = try start("a.db")
        #expect(try run(server, "apply", "-f", try directory.write(Self.definitions, to: "all.yaml")).end == .exit(0))
        let client = try server.client()
        for (method, target, body) in [
            ("POST", "/v1/experiments/checkout/conclude", #"{"winner":null,"reason":"r"}"#),
            ("PUT", "/v1/holdouts/all", #"{"share":5,"flags":["banner"]}"#),
            (
                "PUT", "/v1/experiments/grouped",
                #"{"variations":["a"],"group":"g","traffic":30,"schedule":{"end_at":"2999-01-01T00:00:00Z"}}"#
            ),
        ] {
            #expect(try client.request(method, target, body).status < 300)
        }
        let good = try directory.write(try run(server, "pull").output, to: "good.yaml")
        let bad = try directory.write("experiments:\n  - {key: a, variations: [x], trafic: 5}\n", to: "bad.yaml")
        let schema = try directory.write(try run(nil, "schema").output, to: "schema.json")
        let script = """
            import json, sys, jsonschema, yaml
            schema = json.load(open(sys.argv[1]))
            validator = jsonschema.Draft202012Validator(schema)
            validator.check_schema(schema)
            print(*(len(list(validator.iter_errors(yaml.safe_load(open(file))))) for file in sys.argv[2:]))
            """
        let output = try runAt(PythonPackages.interpreter, ["-c", script, schema, good, bad])
        #expect(output == "0 1", "\(output)")
    }
}
