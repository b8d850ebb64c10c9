import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// A plan that is kept and applied later, removals and their undoing, renames, and what `pull` leaves alone.
@Suite struct DefinitionPlanTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func start(_ options: [String] = []) throws -> ServerProcess {
        try ServerProcess(database: directory.file("a.db"), options)
    }

    private func run(
        _ server: ServerProcess, _ arguments: String..., token: String? = nil, sdkKey: String? = nil
    ) throws -> Command {
        var environment = ["HOLDFAST_URL": "http://127.0.0.1:\(server.port)"]
        environment["HOLDFAST_TOKEN"] = token
        environment["HOLDFAST_SDK_KEY"] = sdkKey
        return try Command(arguments, environment: environment)
    }

    private func write(_ definitions: String, to name: String = "all.yaml") throws -> String {
        try directory.write(definitions, to: name)
    }

    private static let checkout = "experiments:\n  - {key: checkout, id: \"7001\", variations: [control, new]}\n"

    /// Assigns users.
    ///
    /// - Returns: the variation of each.
    private func assign(
        _ count: Int, to experiment: String, _ server: ServerProcess, sdkKey: String = "default"
    ) throws -> [JSONValue] {
        let users = (0..<count).map { #"{"user_id":"u\#($0)","experiment":"\#(experiment)"}"# }
        let response = try server.client().request(
            "POST", "/v1/assign", "[\(users.joined(separator: ","))]", fields: ["X-Optimizely-SDK-Key: \(sdkKey)"])
        #expect(response.status == 200, "\(response.text)")
        return try #require(response.json.array).map { $0["variation_id"] }
    }

    private func status(_ key: String, _ server: ServerProcess) throws -> JSONValue {
        try server.client().request("GET", "/v1/experiments/\(key)")["status"]
    }

    // MARK: plan --out, apply of a plan

    @Test func `A plan in a file is what is applied, unless something was changed since`() throws {
        let server = try start()
        let file = try write(Self.checkout)
        let plan = directory.file("plan.json")
        #expect(try run(server, "plan", "-f", file, "--out", plan).end == .exit(2))
        // The files do not matter any more.
        try FileManager.default.removeItem(atPath: file)
        let applied = try run(server, "apply", plan)
        #expect(applied.end == .exit(0) && applied.output.contains("1 created"), "\(applied)")
        let again = try run(server, "apply", plan)
        #expect(again.end == .exit(1) && again.errors.contains("plan again"), "\(again)")

        let edits = [
            ("/v1/experiments/other", #"{"variations":["a"]}"#), ("/v1/experiments/checkout", #"{"traffic":30}"#),
            ("/v1/attributes/country", #"{"type":"country"}"#),
            ("/v1/metrics/m", #"{"kind":"conversion","goal":"g"}"#),
        ]
        for (path, body) in edits {
            let edited = try write(Self.checkout.replacing("[control, new]}", with: "[control, new], traffic: 50}"))
            #expect(try run(server, "plan", "-f", edited, "--out", plan).end == .exit(2))
            #expect(try server.client().request("PUT", path, body).status < 300)
            let late = try run(server, "apply", plan)
            #expect(late.end == .exit(1) && late.errors.contains("plan again"), "\(path): \(late)")
            #expect(try server.client().request("GET", "/v1/experiments/checkout")["traffic"] != 50, "\(path)")
        }
        let edited = try write(Self.checkout.replacing("[control, new]}", with: "[control, new], traffic: 50}"))
        #expect(try run(server, "plan", "-f", edited, "--out", plan).end == .exit(2))
        #expect(try run(server, "apply", plan).end == .exit(0))
        #expect(try server.client().request("GET", "/v1/experiments/checkout")["traffic"] == 50)
    }

    @Test func `A plan keeps its options and its project, and nothing else is taken for one`() throws {
        let server = try start()
        #expect(try server.client().request("PUT", "/v1/projects/shop", "{}").status < 300)
        #expect(try run(server, "apply", "-f", try write(Self.checkout), sdkKey: "shop").end == .exit(0))
        let plan = directory.file("plan.json")
        let file = try write("metrics:\n  - {key: m, kind: conversion, goal: g}\n")
        #expect(try run(server, "plan", "-f", file, "--prune", "--out", plan, sdkKey: "shop").end == .exit(2))
        for wrong in [
            try run(server, "apply", plan), try run(server, "apply", plan, "--prune", sdkKey: "shop"),
            try run(server, "apply", plan, "-f", file, sdkKey: "shop"), try run(server, "apply", sdkKey: "shop"),
            try run(server, "apply", file, sdkKey: "shop"),
        ] {
            #expect(wrong.end == .exit(1) && wrong.errors.split(separator: "\n").count == 1, "\(wrong)")
        }
        let applied = try run(server, "apply", plan, sdkKey: "shop")
        #expect(applied.end == .exit(0) && applied.output.contains("1 created, 1 changed, 0 removed"), "\(applied)")
        let archived = try server.client().request(
            "GET", "/v1/experiments/checkout", fields: ["X-Optimizely-SDK-Key: shop"])
        #expect(archived["status"] == "archived")
    }

    @Test func `A plan is printed as JSON and as Markdown`() throws {
        let server = try start()
        #expect(try run(server, "apply", "-f", try write(Self.checkout)).end == .exit(0))
        let edited = Self.checkout.replacing("[control, new]}", with: "[control, new], name: \"a|b\", traffic: 50}")
        let file = try write(edited + "metrics:\n  - {key: m, kind: conversion, goal: g}\n")
        let json = try run(server, "plan", "-f", file, "--json")
        #expect(json.end == .exit(2))
        let response = try JSONParser().parse(json.output)
        #expect(response["changes"].array?.map { $0["key"] } == ["m", "checkout"])
        #expect(response["changes"].array?.last?["members"].array?.contains { $0["after"] == 50 } == true)
        #expect(response["basis"].string?.isEmpty == false && response["moves"]["users"] == 0)
        let markdown = try run(server, "plan", "-f", file, "--markdown")
        #expect(markdown.end == .exit(2))
        let lines = markdown.output.split(separator: "\n")
        #expect(lines.first == "| | definition | member | before | after |")
        #expect(lines.contains("| create | metric `m` | | | |"), "\(markdown.output)")
        #expect(lines.contains("| change | experiment `checkout` | `traffic` | `100` | `50` |"), "\(markdown.output)")
        #expect(lines.contains { $0.contains(#"a\|b"#) } && lines.last == "no enrolled user would move")
    }

    @Test func `A plan says what will wait for another person`() throws {
        let secrets = ["ann-secret-0123456789", "bob-secret-0123456789"]
        let tokens = try directory.write("admin ann \(secrets[0])\nadmin bob \(secrets[1])\n", to: "tokens")
        let server = try start(["--tokens-file", tokens, "--approvals", "2"])
        let first = try run(server, "plan", "-f", try write(Self.checkout), token: secrets[0])
        #expect(first.end == .exit(2) && !first.output.contains("approval"), "\(first)")
        #expect(try run(server, "apply", "-f", try write(Self.checkout), token: secrets[0]).end == .exit(0))
        let edited = try write(Self.checkout.replacing("[control, new]}", with: "[control, new], traffic: 50}"))
        let plan = directory.file("plan.json")
        let held = try run(server, "plan", "-f", edited, "--out", plan, token: secrets[0])
        #expect(held.output.hasSuffix("will wait for the approval of another person: changes the running checkout"))
        let json = try JSONParser().parse(try run(server, "plan", "-f", edited, "--json", token: secrets[0]).output)
        #expect(json["needs_approval"] == ["checkout"])
        #expect(try run(server, "apply", plan, token: secrets[0]).end == .exit(3))
        #expect(
            try server.client().request("GET", "/v1/experiments/checkout", token: secrets[1])["traffic"] == 100)
    }

    // MARK: Removals

    @Test func `What a commit removed, its revert restores, and users keep their variations`() throws {
        let server = try start()
        let file = try write(Self.checkout)
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        let assigned = try assign(40, to: "checkout", server)
        #expect(Set(assigned.compactMap(\.string)).count == 2)
        _ = try write("metrics:\n  - {key: m, kind: conversion, goal: g}\n")
        #expect(try run(server, "apply", "--prune", "-f", file).end == .exit(0))
        #expect(try status("checkout", server) == "archived")
        _ = try write(Self.checkout)
        let plan = try run(server, "plan", "-f", file)
        #expect(plan.end == .exit(2), "\(plan)")
        #expect(plan.output.contains(#"status: "archived" -> "running""#), "\(plan.output)")
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        #expect(try status("checkout", server) == "running")
        #expect(try assign(40, to: "checkout", server) == assigned)
        #expect(try run(server, "plan", "-f", file).output == "nothing to change")
    }

    @Test func `A paused or concluded experiment stays so, and the plan warns of it`() throws {
        let server = try start()
        let definitions = """
            experiments:
              - {key: slow, variations: [a, b]}
              - {key: over, variations: [a, b]}
              - {key: past, variations: [a, b]}
            """
        let file = try write(definitions)
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        let client = try server.client()
        #expect(try client.request("PUT", "/v1/experiments/slow", #"{"status":"paused"}"#).status == 200)
        for key in ["over", "past"] {
            let conclusion = try client.request("POST", "/v1/experiments/\(key)/conclude", #"{"winner":"b"}"#)
            #expect(conclusion.status == 200)
        }
        #expect(try client.request("DELETE", "/v1/experiments/past").status < 300)
        // What was concluded before it was archived is concluded again.
        let plan = try run(server, "plan", "-f", file)
        #expect(plan.output.contains(#"status: "archived" -> "concluded""#), "\(plan)")
        #expect(try run(server, "apply", "-f", file).end == .exit(0))
        for (key, expected) in [("slow", "paused"), ("over", "concluded"), ("past", "concluded")] {
            #expect(try status(key, server) == .string(expected))
            let again = try run(server, "plan", "-f", file)
            #expect(again.end == .exit(0))
            #expect(
                again.errors.contains("the experiment '\(key)' is \(expected) and stays so"), "\(again.errors)")
        }
        let resumed = try write(definitions.replacing("{key: slow,", with: "{key: slow, status: running,"))
        #expect(try run(server, "apply", "-f", resumed).end == .exit(0))
        #expect(try status("slow", server) == "running")
    }

    @Test func `Files with nothing remove nothing unless the number is given, and never more than it`() throws {
        let server = try start()
        let all =
            Self.checkout + "  - {key: other, variations: [a]}\nmetrics:\n  - {key: m, kind: conversion, goal: g}\n"
        #expect(try run(server, "apply", "-f", try write(all)).end == .exit(0))
        let empty = try write("", to: "empty.yaml")
        for command in ["plan", "apply"] {
            let refused = try run(server, command, "--prune", "-f", empty)
            #expect(refused.end == .exit(1) && refused.errors.contains("--max-removals"), "\(refused)")
            let few = try run(server, command, "--prune", "--max-removals", "2", "-f", empty)
            #expect(few.end == .exit(1) && few.errors.contains("would be removed; got 2"), "\(few)")
        }
        #expect(try status("checkout", server) == "running")
        let rest = try write(Self.checkout, to: "rest.yaml")
        #expect(try run(server, "apply", "--prune", "--max-removals", "1", "-f", rest).end == .exit(1))
        #expect(try run(server, "apply", "--prune", "--max-removals", "2", "-f", rest).end == .exit(0))
        #expect(try status("other", server) == "archived" && status("checkout", server) == "running")
        #expect(try run(server, "apply", "--prune", "--max-removals", "1", "-f", empty).end == .exit(0))
        #expect(try status("checkout", server) == "archived")
    }

    // MARK: Renames and ids

    @Test func `An experiment is renamed by its id, and nobody moves`() throws {
        let server = try start()
        #expect(try run(server, "apply", "-f", try write(Self.checkout)).end == .exit(0))
        let holdout = #"{"share":10,"flags":["checkout"]}"#
        #expect(try server.client().request("PUT", "/v1/holdouts/some", holdout).status == 201)
        // Against the weights of later, so that only what is stored keeps them.
        let assigned = try assign(60, to: "checkout", server)
        let edited = Self.checkout.replacing(
            "[control, new]", with: "[{key: control, weight: 9}, {key: new, weight: 1}]")
        #expect(try run(server, "apply", "-f", try write(edited), "--moves", "allow").end == .exit(0))
        let renamed = edited.replacing("key: checkout", with: "key: till")
        let plan = try run(server, "plan", "-f", try write(renamed))
        #expect(plan.end == .exit(2) && plan.output.contains("no enrolled user would move"), "\(plan)")
        let applied = try run(server, "apply", "-f", try write(renamed))
        #expect(applied.end == .exit(0), "\(applied)")
        #expect(try assign(60, to: "till", server) == assigned)
        #expect(try server.client().request("GET", "/v1/experiments/checkout").status == 404)
        #expect(try server.client().request("GET", "/v1/experiments/till")["id"] == "7001")
        #expect(try server.client().request("GET", "/v1/holdouts/some")["flags"] == ["till"])
        let users = try server.client().request("GET", "/v1/profiles/u0/experiments/till")
        #expect(users["variation_id"] == assigned[0])
        #expect(try run(server, "plan", "-f", try write(renamed)).output == "nothing to change")
        // A key that something else has is no new name, and two experiments do not share an id.
        let both = try write(renamed + "  - {key: checkout, id: \"7001\", variations: [control, new]}\n")
        let refused = try run(server, "apply", "-f", both)
        #expect(refused.end == .exit(1), "\(refused)")
        #expect(try server.client().request("GET", "/v1/experiments/checkout").status == 404)
    }

    @Test func `Between two projects of a server ids are left out, or shared on purpose`() throws {
        let server = try start()
        for project in ["main", "stage", "twin"] {
            #expect(try server.client().request("PUT", "/v1/projects/\(project)", "{}").status < 300)
        }
        #expect(try run(server, "apply", "-f", try write(Self.checkout), sdkKey: "stage").end == .exit(0))
        let pulled = try write(try run(server, "pull", sdkKey: "stage").output, to: "pulled.yaml")
        let assigned = try assign(40, to: "checkout", server, sdkKey: "stage")
        let refused = try run(server, "apply", "-f", pulled)
        #expect(refused.end == .exit(1) && refused.errors.contains("--new-ids"), "\(refused)")
        #expect(refused.errors.contains("stage"), "\(refused)")
        let plan = try run(server, "plan", "--new-ids", "-f", pulled)
        #expect(
            plan.output.contains("the hash splits users anew, other than where the definitions come from: checkout"),
            "\(plan)")
        #expect(try run(server, "apply", "--new-ids", "-f", pulled).end == .exit(0))
        #expect(try run(server, "plan", "--new-ids", "-f", pulled).end == .exit(0))
        let experiment = try server.client().request("GET", "/v1/experiments/checkout")
        #expect(experiment["id"].string != nil && experiment["id"] != "7001")
        #expect(try assign(40, to: "checkout", server) != assigned)
        #expect(try run(server, "apply", "--share", "allow", "-f", pulled, sdkKey: "twin").end == .exit(0))
        #expect(try assign(40, to: "checkout", server, sdkKey: "twin") == assigned)
    }

    // MARK: pull, and small things

    @Test func `Comments are not overwritten, and then nothing is`() throws {
        let server = try start()
        #expect(try run(server, "apply", "-f", try write(Self.checkout)).end == .exit(0))
        let pulled = directory.file("pulled.yaml")
        #expect(try run(server, "pull", "-o", pulled).end == .exit(0))
        #expect(try run(server, "pull", "-o", pulled).end == .exit(0))
        let written = try String(contentsOfFile: pulled, encoding: .utf8)
        for commented in [
            "# ours\n" + written, written + "\n  # at the end\n", written.replacing("\n", with: " # x\n"),
        ] {
            _ = try directory.write(commented, to: "pulled.yaml")
            let refused = try run(server, "pull", "-o", pulled)
            #expect(refused.end == .exit(1) && refused.errors.contains("--overwrite"), "\(refused)")
            #expect(try String(contentsOfFile: pulled, encoding: .utf8) == commented)
        }
        #expect(try run(server, "pull", "-o", pulled, "--overwrite").end == .exit(0))
        #expect(try String(contentsOfFile: pulled, encoding: .utf8) == written)
        // A number sign within a text is none.
        let named = Self.checkout.replacing("[control, new]}", with: "[control, new], name: \"No # 1\", owner: a#b}")
        #expect(try run(server, "apply", "-f", try write(named)).end == .exit(0))
        #expect(try run(server, "pull", "-o", pulled).end == .exit(0))
        #expect(try run(server, "pull", "-o", pulled).end == .exit(0))

        let folder = directory.file("folder")
        #expect(try run(server, "pull", "-o", folder).end == .exit(0))
        let experiments = try String(contentsOfFile: "\(folder)/experiments.yaml", encoding: .utf8)
        try "# of flags\nflags: []\n".write(toFile: "\(folder)/flags.yaml", atomically: true, encoding: .utf8)
        #expect(try server.client().request("PUT", "/v1/experiments/other", #"{"variations":["a"]}"#).status == 201)
        #expect(try run(server, "pull", "-o", folder).end == .exit(1))
        #expect(try String(contentsOfFile: "\(folder)/experiments.yaml", encoding: .utf8) == experiments)
        #expect(try run(server, "pull", "--overwrite", "-o", folder).end == .exit(0))
        #expect(try String(contentsOfFile: "\(folder)/experiments.yaml", encoding: .utf8).contains("other"))
    }

    @Test func `The order of members is no difference, and an unknown member is named first`() throws {
        let server = try start()
        let segment = "attributes:\n  - {name: c, type: country}\nsegments:\n  - name: s\n    conditions: "
        let condition = "{type: custom_attribute, name: c, match: in, value: [no]}"
        #expect(try run(server, "apply", "-f", try write(segment + condition)).end == .exit(0))
        let other = "{value: [no], match: in, name: c, type: custom_attribute}"
        let plan = try run(server, "plan", "-f", try write(segment + other))
        #expect(plan.end == .exit(0) && plan.output == "nothing to change", "\(plan)")
        let lint = try run(server, "lint", "-f", try write("experiments:\n  - {key: a, variation: [x], trafic: 5}\n"))
        #expect(lint.end == .exit(1))
        #expect(lint.errors.contains("did you mean `variations`") && !lint.errors.contains("must have `variations`"))
    }

    @Test func `A wrong token is told in a sentence`() throws {
        let tokens = try directory.write("admin ann ann-secret-0123456789\n", to: "tokens")
        let server = try start(["--tokens-file", tokens])
        let file = try write(Self.checkout)
        for arguments in [["plan", "-f", file], ["apply", "-f", file], ["pull"]] {
            let refused = try Command(
                arguments,
                environment: ["HOLDFAST_URL": "http://127.0.0.1:\(server.port)", "HOLDFAST_TOKEN": "another-secret"])
            #expect(refused.end == .exit(1))
            #expect(
                refused.errors.hasPrefix("Error: http://127.0.0.1:\(server.port) refuses HOLDFAST_TOKEN: the token"),
                "\(refused.errors)")
            #expect(refused.errors.split(separator: "\n").count == 1)
        }
    }
}
