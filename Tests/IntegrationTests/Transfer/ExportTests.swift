import APITestSupport
import Dispatch
import Foundation
import JSON
import PostgreSQLTestSupport
import ProcessTestSupport
import Synchronization
import Testing

/// `holdfast export` from a server: files that together say what the store has, whatever became of the process.
@Suite struct ExportTests {
    private let directory: TemporaryDirectory
    private let files: String
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        files = directory.file("files")
        server = try ServerProcess(database: directory.file("holdfast.db"))
    }

    private func arguments(_ kind: String, _ options: [String]) -> [String] {
        ["export", kind, "--after", directory.file("cursor"), "--directory", files] + options
    }

    private var environment: [String: String] { ["HOLDFAST_URL": "http://127.0.0.1:\(server.port)"] }

    private func export(_ kind: String = "all", _ options: String...) throws -> Command {
        try Command(arguments(kind, options), environment: environment)
    }

    private func start(_ options: String...) throws -> ChildProcess {
        try ChildProcess(Executable.holdfast, arguments("all", options + ["--follow"]), environment: environment)
    }

    private func expectStored(_ found: ExportedData, at sourceLocation: SourceLocation = #_sourceLocation) throws {
        let stored = try ExportedData(of: server)
        #expect(found.assignments == stored.assignments, sourceLocation: sourceLocation)
        #expect(found.exposures == stored.exposures, sourceLocation: sourceLocation)
        let (extra, missing) = (found.goals.subtracting(stored.goals), stored.goals.subtracting(found.goals))
        #expect(extra.isEmpty && missing.isEmpty, "\(extra) \(missing)", sourceLocation: sourceLocation)
        #expect(found.goalCount == stored.goalCount, sourceLocation: sourceLocation)
        #expect(found.audit == stored.audit, sourceLocation: sourceLocation)
    }

    @Test(arguments: [HistoryRun.Setting.Database.sqlite, .postgreSQL(.postgreSQL)])
    func `Definitions have a row for each variation and each time in which it did not change`(
        kind: HistoryRun.Setting.Database
    ) throws {
        let database = try SharedDatabase.make(kind, in: TemporaryDirectory())
        let server = try ServerProcess(database: database.location, database.options)
        let variations = #"[{"key":"a","id":"1","weight":1},{"key":"b","id":"2","weight":3}]"#
        let body = #"{"id":"11","name":"Faster","variations":\#(variations)}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", body).status == 201)
        // Changes nothing of these rows.
        #expect(try server.request("PUT", "/v1/flags/banner", #"{"type":"boolean"}"#).status == 201)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"status":"paused"}"#).status == 200)
        #expect(try server.request("PUT", "/v1/holdouts/quiet", #"{"share":10}"#).status == 201)
        #expect(try server.request("PUT", "/v1/flags/banner", #"{"enabled":false}"#).status == 200)
        let command = try Command("export", "definitions", "--database", database.location)
        #expect(command.end == .exit(0), "\(command.errors)")
        let rows = try command.output.split(separator: "\n").map { try JSONParser().parse(String($0)) }
        let experiments = rows.filter { $0["kind"] == "experiment" }
        try #require(experiments.map { $0["variation_id"].string } == ["1", "2", "1", "2"], "\(command.output)")
        #expect(experiments.map { $0["status"].string } == ["running", "running", "paused", "paused"])
        #expect(experiments.map { $0["allocation"].double } == [25, 75, 25, 75])
        #expect(experiments.allSatisfy { $0["key"] == "checkout" && $0["id"] == "11" && $0["name"] == "Faster" })
        #expect(experiments.allSatisfy { $0["project"] == "default" })
        #expect(experiments[0]["valid_to"] == experiments[2]["valid_from"])
        #expect(experiments[0]["valid_to"].string != nil)
        #expect(experiments[2]["valid_to"].isNull)
        let holdouts = rows.filter { $0["kind"] == "holdout" }
        #expect(holdouts.map { $0["variation_key"].string } == ["off"])
        #expect(holdouts.first?["allocation"].double == 10)
        let flags = rows.filter { $0["kind"] == "flag" }
        let described = flags.map {
            "\($0["variation_key"].string ?? "") \($0["value"].string ?? "") \($0["status"].string ?? "")"
        }
        #expect(
            Set(described) == ["on true enabled", "off false enabled", "on true disabled", "off false disabled"],
            "\(command.output)")
        #expect(flags.allSatisfy { $0["variation_id"].isNull && $0["allocation"].isNull && $0["key"] == "banner" })
        #expect(flags.count { $0["valid_to"].isNull } == 2)
        #expect(experiments.allSatisfy { $0["value"].isNull })
        server.stop()
    }

    @Test(arguments: [HistoryRun.Setting.Database.sqlite, .postgreSQL(.postgreSQL)])
    func `Attributes of all users are exported as an import takes them`(kind: HistoryRun.Setting.Database) throws {
        let database = try SharedDatabase.make(kind, in: TemporaryDirectory())
        let server = try ServerProcess(database: database.location, database.options)
        #expect(try server.request("PUT", "/v1/attributes/country", #"{"type":"string"}"#).status == 201)
        // More than a page.
        let lines = (0..<2_100).map { #"{"user_id":"u\#($0)","attributes":{"country":"c\#($0 % 7)"}}"# }
        let imported = try server.request("POST", "/v1/profiles/attributes", lines.joined(separator: "\n"))
        #expect(imported.status == 200, "\(imported.text)")
        #expect(try server.request("POST", "/ups/save", profile("without", ["11": "1"])).status == 200)
        let command = try Command("export", "attributes", "--database", database.location)
        #expect(command.end == .exit(0), "\(command.errors)")
        #expect(Set(command.output.split(separator: "\n").map(String.init)) == Set(lines))
        server.stop()
    }

    @Test func `A metric says up to when everything is in the files, and stands still while the server is away`() throws
    {
        let path = directory.file("export.prom")
        func complete(_ mode: String) throws -> Int? {
            guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return nil }
            let sample = #"holdfast_export_complete_timestamp_seconds{kinds="all",mode="\#(mode)"} "#
            return text.split(separator: "\n").first { $0.hasPrefix(sample) }.flatMap {
                Int($0.dropFirst(sample.count))
            }
        }
        func now() -> Int { Int(Date().timeIntervalSince1970) }
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let begun = now()
        let once = try export("all", "--metrics-file", path)
        #expect(once.end == .exit(0), "\(once.errors)")
        let value = try #require(try complete("once"))
        #expect((begun...now()).contains(value))
        // The collector is another user.
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
        #expect(mode.map { $0 & 0o444 } == 0o444)

        let following = try start("--metrics-file", path)
        #expect(try server.request("POST", "/ups/save", profile("bob", ["11": "2"])).status == 200)
        let saved = now()
        let deadline = ContinuousClock.now + .seconds(60)
        while try complete("follow") ?? 0 <= saved, .now < deadline { usleep(20_000) }
        #expect(try #require(try complete("follow")) > saved)
        #expect(try ExportedData(filesIn: files).assignments["bob 11"] != nil)
        server.stop()
        let stopped = now()
        #expect(following.errors.line(0)?.contains("trying again") == true)
        #expect(try #require(try complete("follow")) <= stopped)
        following.send(SIGKILL)
        following.wait()
    }

    @Test func `A metric that cannot be written is told, and the export goes on`() throws {
        let command = try export("all", "--metrics-file", directory.file("none/export.prom"))
        #expect(command.end == .exit(0) && command.errors.contains("the export goes on"), "\(command)")
        server.stop()
    }

    @Test func `The files of an export that is killed again and again say what the store has`() throws {
        let load = try ExportLoad(server)
        load.waitForRequests(200)
        for _ in 0..<10 {
            let export = try start("--max-bytes", "20000")
            usleep(.random(in: 20_000...500_000))
            export.send(SIGKILL)
            #expect(export.wait() == .signal(SIGKILL))
        }
        load.end()
        let last = try export("all", "--max-bytes", "20000")
        #expect(last.end == .exit(0), "\(last.errors)")
        let names = try FileManager.default.contentsOfDirectory(atPath: files)
        #expect(names.count > 4 && names.allSatisfy { $0.hasSuffix(".ndjson") }, "\(names)")
        for name in names {
            let size = try FileManager.default.attributesOfItem(atPath: "\(files)/\(name)")[.size] as? Int ?? 0
            #expect(size > 0 && size <= 20_000, "\(name)")
        }
        try expectStored(try ExportedData(filesIn: files))
        server.stop()
    }

    @Test func `An erasure and a merge come in the files of every kind`() throws {
        for user in ["ada", "bob"] {
            #expect(try server.request("POST", "/ups/save", profile(user, ["11": "1"])).status == 200)
            #expect(
                try server.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"paid","value":2}"#).status
                    == 200)
        }
        #expect(try export().end == .exit(0))
        #expect(try server.request("POST", "/v1/profiles/cy/merge", #"{"from":"ada"}"#).status == 200)
        #expect(try server.request("DELETE", "/v1/profiles/bob").status == 200)
        #expect(try export().end == .exit(0))
        for kind in ["assignments", "exposures", "events", "audit"] {
            let text = try String(contentsOfFile: "\(files)/\(kind)-0001-000002.ndjson", encoding: .utf8)
            #expect(text.contains(#""kind":"merge""#) && text.contains(#""user_id":"cy","from":"ada""#), "\(kind)")
            #expect(text.contains(#""kind":"erasure""#) && text.contains(#""user_id":"bob""#), "\(kind)")
        }
        try expectStored(try ExportedData(filesIn: files))
        server.stop()
    }

    @Test func `What a torn write has left is cut off, and what is not committed is removed`() throws {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let export = try start()
        let cursor = directory.file("cursor")
        for _ in 0..<6_000 where !FileManager.default.fileExists(atPath: cursor) { usleep(10_000) }
        export.send(SIGKILL)
        export.wait()
        let torn = try #require(FileHandle(forWritingAtPath: "\(files)/events-0001-000001.ndjson.partial"))
        try torn.seekToEnd()
        try torn.write(contentsOf: Data(#"{"line":9,"kind":"go"#.utf8))
        _ = try directory.write("{", to: "files/audit-0001-000002.ndjson.partial")
        _ = try directory.write("{", to: "files/audit-0002-000001.ndjson.partial")
        _ = try directory.write("{", to: "cursor.new")
        #expect(try server.request("POST", "/ups/save", profile("bob", ["11": "2"])).status == 200)
        let again = try self.export()
        #expect(again.end == .exit(0), "\(again.errors)")
        try expectStored(try ExportedData(filesIn: files))
        server.stop()
    }

    @Test func `When the feed has deleted what comes next, another export begins in new files and says so`() throws {
        for user in ["ada", "bob"] {
            #expect(try server.request("POST", "/ups/save", profile(user, ["11": "1"])).status == 200)
        }
        #expect(try export().end == .exit(0))
        let cursor = directory.file("cursor")
        let text = try String(contentsOfFile: cursor, encoding: .utf8)
        // A cursor of another database.
        try text.replacing(#/"feed":"[^"]*"/#, with: #""feed":"1-1-0""#)
            .write(toFile: cursor, atomically: true, encoding: .utf8)
        #expect(try server.request("DELETE", "/v1/profiles/bob").status == 200)
        let again = try export()
        #expect(again.end == .exit(0) && again.errors.contains("another export begins"), "\(again)")
        let first = try String(contentsOfFile: "\(files)/assignments-0002-000001.ndjson", encoding: .utf8)
        #expect(first.contains(#","kind":"export_begin","export":2,"at":""#))
        let found = try ExportedData(filesIn: files)
        #expect(found.assignments.count == 1)
        try expectStored(found)
        server.stop()
    }

    @Test func `To standard output each line comes once while nothing fails, and a tombstone once for all kinds`()
        throws
    {
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        #expect(try export("all", "--directory", "-").output.contains(#""user_id":"ada","experiment_id":"11""#))
        #expect(try server.request("DELETE", "/v1/profiles/ada").status == 200)
        let lines = try export("all", "--directory", "-").output.split(separator: "\n")
        #expect(lines.count { $0.contains(#""kind":"erasure""#) } == 1)
        #expect(lines.count { $0.contains(#""action":"profile.erase""#) } == 1)
        #expect(try export("all", "--directory", "-").output.isEmpty)
        server.stop()
    }

    @Test func `What an export cannot use is an error that names it`() throws {
        #expect(try export("events").end == .exit(0))
        let kinds = try export("audit")
        #expect(kinds.errors.contains("must be of an export of the same kinds; it has events"), "\(kinds.errors)")
        let cursor = directory.file("cursor")
        let saved = try String(contentsOfFile: cursor, encoding: .utf8)
        for (text, reason) in [
            ("[]", "of this release"), (saved.replacing("\"number\":2", with: "\"number\":1"), "does not know"),
        ] {
            try text.write(toFile: cursor, atomically: true, encoding: .utf8)
            let refused = try export("events")
            #expect(refused.end == .exit(1) && refused.errors.contains(reason), "\(refused.errors)")
        }
        let size = try export("events", "--max-bytes", "0")
        #expect(size.errors.contains("--max-bytes must be a size from 1 to 1024GiB"), "\(size.errors)")
        let off = try ServerProcess(database: directory.file("off.db"), ["--feed-retention", "0"])
        let refused = try Command(
            ["export", "events", "--after", directory.file("other")],
            environment: ["HOLDFAST_URL": "http://127.0.0.1:\(off.port)"])
        #expect(refused.end == .exit(1) && refused.errors.contains("--feed-retention 0"), "\(refused.errors)")
        off.stop()
        server.stop()
    }
}

/// What somebody knows who reads the lines of an export, or who asks the server itself.
private struct ExportedData {
    var assignments: [String: JSONValue] = [:]
    var exposures: [String: JSONValue] = [:]
    /// User, id and content of each goal.
    private var reached: [(user: String, id: String?, content: String)] = []
    var audit: [Int64: JSONValue] = [:]

    /// Reads all files of a directory, each line of which must be there once.
    init(filesIn directory: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        var lines: [JSONValue] = []
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            let text = try String(contentsOfFile: "\(directory)/\(name)", encoding: .utf8)
            lines += try text.split(separator: "\n").map { try JSONParser().parse(String($0)) }
        }
        lines.sort { ($0["line"].integer ?? 0) < ($1["line"].integer ?? 0) }
        #expect(
            lines.map { $0["line"].integer } == (0..<lines.count).map { Int64($0) + 1 }, sourceLocation: sourceLocation)
        for line in lines { apply(line) }
    }

    private mutating func apply(_ line: JSONValue) {
        let user = line["user_id"].string ?? ""
        var content = JSONObject()
        for member in line.object ?? JSONObject() where !["line", "kind", "at"].contains(member.key) {
            content[member.key] = member.value
        }
        switch line["kind"].string {
        // The files of each kind begin with one, and so does the data: before the first line of content.
        case "export_begin": self = ExportedData()
        case "export_end": break
        case "assignment":
            if let experiment = line["experiment_id"].string {
                assignments["\(user) \(experiment)"] = line["variation_id"].isNull ? nil : .object(content)
            }
        case "exposure": exposures["\(user) \(line["experiment_id"].string ?? "")"] = .object(content)
        case "goal": addGoal(content)
        case "audit": audit[line["id"].integer ?? 0] = .object(content)
        case "merge":
            let from = line["from"].string ?? ""
            forget(from)
            let known = Set(reached.filter { $0.user == user }.compactMap(\.id))
            reached.removeAll { $0.user == from && $0.id.map(known.contains) == true }
            for index in reached.indices where reached[index].user == from { reached[index].user = user }
            for (id, entry) in audit where entry["user_id"].string == from {
                audit[id] = Self.entry(entry, userID: .string(user))
            }
        case "erasure":
            forget(user)
            reached.removeAll { $0.user == user }
            for (id, entry) in audit where entry["user_id"].string == user {
                audit[id] = Self.entry(entry, userID: .null)
            }
            for (id, entry) in audit where entry["action"] == "profile.merge" && entry["after"]["from"].string == user {
                guard var members = entry.object, var after = members["after"]?.object else { continue }
                after["from"] = .null
                members["after"] = .object(after)
                audit[id] = .object(members)
            }
        default: Issue.record("unknown line \(line)")
        }
    }

    private init() {}

    var goals: Set<String> { Set(reached.map { "\($0.user) \($0.content)" }) }
    var goalCount: Int { reached.count }

    private mutating func forget(_ user: String) {
        assignments = assignments.filter { !$0.key.hasPrefix("\(user) ") }
        exposures = exposures.filter { !$0.key.hasPrefix("\(user) ") }
    }

    private mutating func addGoal(_ members: JSONObject) {
        var content = members
        (content["cursor"], content["user_id"]) = (nil, nil)
        let text = String(decoding: JSONValue.object(content).encoded(), as: UTF8.self)
        reached.append((members["user_id"]?.string ?? "", members["id"]?.string, text))
    }

    private static func entry(_ entry: JSONValue, userID: JSONValue) -> JSONValue {
        guard var members = entry.object else { return entry }
        members["user_id"] = userID
        if userID.isNull { (members["before"], members["after"]) = (.null, .null) }
        return .object(members)
    }

    /// Asks a server for what it has.
    init(of server: ServerProcess) throws {
        for line in try server.request("GET", "/v1/profiles?detail=true").text.split(separator: "\n") {
            let profile = try JSONParser().parse(String(line))
            let user = profile["user_id"].string ?? ""
            for member in profile["experiment_bucket_map"].object ?? JSONObject() {
                var content = JSONObject()
                content["user_id"] = .string(user)
                content["experiment_id"] = .string(member.key)
                for detail in member.value.object ?? JSONObject() { content[detail.key] = detail.value }
                assignments["\(user) \(member.key)"] = .object(content)
            }
        }
        for line in try server.request("GET", "/v1/exposures").text.split(separator: "\n") {
            var content = try JSONParser().parse(String(line)).object ?? JSONObject()
            content["cursor"] = nil
            exposures["\(content["user_id"]?.string ?? "") \(content["experiment_id"]?.string ?? "")"] = .object(
                content)
        }
        for line in try server.request("GET", "/v1/events").text.split(separator: "\n") {
            addGoal(try JSONParser().parse(String(line)).object ?? JSONObject())
        }
        var page = try server.request("GET", "/v1/audit?limit=1000").json
        while true {
            for entry in page["entries"].array ?? [] { audit[entry["id"].integer ?? 0] = entry }
            guard let next = page["next"].integer else { return }
            page = try server.request("GET", "/v1/audit?limit=1000&after=\(next)").json
        }
    }
}

/// Random changes of a few users by two clients, until it is told to end.
private final class ExportLoad: Sendable {
    private let group = DispatchGroup()
    private let isEnding = Atomic(false)
    private let requests = Atomic(0)

    init(_ server: ServerProcess) throws {
        for number in 1...3 {
            let variations = (1...3).map { #"{"key":"v\#($0)","id":"\#(number)\#($0)"}"# }.joined(separator: ",")
            let definition = #"{"id":"\#(number)","variations":[\#(variations)]}"#
            #expect(try server.request("PUT", "/v1/experiments/e\(number)", definition).status == 201)
        }
        for _ in 0..<2 {
            let client = try server.client()
            DispatchQueue.global().async(group: group) { [self] in
                while !isEnding.load(ordering: .relaxed) {
                    let (method, target, body) = Self.change()
                    do {
                        let status = try client.request(method, target, body).status
                        #expect([200, 201, 204, 404].contains(status), "\(method) \(target) \(body ?? "")")
                    } catch {
                        return #expect(Bool(false), "\(error)")
                    }
                    requests.add(1, ordering: .relaxed)
                }
            }
        }
    }

    private static func change() -> (method: String, target: String, body: String?) {
        let (user, other) = ("u\(Int.random(in: 0..<40))", "u\(Int.random(in: 40..<60))")
        let variation = Int.random(in: 1...3)
        switch Int.random(in: 0..<20) {
        case 0: return ("DELETE", "/v1/profiles/\(user)", nil)
        case 1: return ("POST", "/v1/profiles/\(other)/merge", #"{"from":"\#(user)"}"#)
        case 2: return ("PUT", "/v1/profiles/\(user)/experiments/7", #"{"variation_id":"\#(variation)"}"#)
        case 3: return ("DELETE", "/v1/profiles/\(user)/experiments/7", nil)
        case 4...9: return ("POST", "/ups/save", profile(user, ["\(Int.random(in: 1...6))": "\(variation)"]))
        case 10...12:
            let experiment = Int.random(in: 1...3)
            let exposure =
                #"{"user_id":"\#(user)","experiment":"e\#(experiment)","variation_id":"\#(experiment)\#(variation)"}"#
            return ("POST", "/v1/exposures", exposure)
        case 13: return ("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"a","id":"\#(Int.random(in: 0..<9))"}"#)
        default: return ("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"paid","value":\#(variation)}"#)
        }
    }

    func waitForRequests(_ count: Int) {
        while requests.load(ordering: .relaxed) < count, group.wait(timeout: .now() + 0.01) == .timedOut {}
    }

    func end() {
        isEnding.store(true, ordering: .relaxed)
        group.wait()
    }
}
