import APITestSupport
import Foundation
import JSON
import Migrations
import ProcessTestSupport
import Testing

/// A database of each former version, with something in each of its tables, is brought up to date by this program.
@Suite struct UpgradeTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    private static let datafile = #"""
        {"version":"4","accountId":"1","projectId":"2","revision":"4","attributes":[],"audiences":[],"groups":[],
        "featureFlags":[],"rollouts":[],"events":[{"id":"e1","key":"purchase","experimentIds":[]}],
        "experiments":[{"id":"7","key":"checkout","layerId":"8","status":"Running","audienceIds":[],
        "forcedVariations":{},"variations":[{"id":"71","key":"control"},{"id":"72","key":"new"}],
        "trafficAllocation":[{"entityId":"71","endOfRange":10000}]}]}
        """#

    /// What releases of each version wrote to the tables that came with it. Never changes, but for more at its end.
    private static let rows = [
        """
        INSERT INTO profiles VALUES ('ada', x'01020001023131013102000302323201390200', NULL);
        UPDATE counters SET commits = 7, profiles = 1, assignments = 2;
        """,
        """
        INSERT INTO datafiles (sdk_key, revision, content, stored_at, author) VALUES
            ('tests', '3', CAST('{"version":"4","revision":"3"}' AS BLOB), 1000, 'on-call'),
            ('tests', '4', CAST('\(datafile)' AS BLOB), 2000, 'on-call');
        INSERT INTO forced_variations VALUES ('tests', 'eve', 'checkout', 'new');
        INSERT INTO events (kind, sdk_key, user_id, received_at, payload) VALUES
            ('impression', 'tests', 'ada', 3000, '{"flag_key":"","rule_key":"checkout","rule_type":"experiment",\
        "experiment_id":"7","campaign_id":"8","variation_id":"71","variation_key":"control","enabled":true}'),
            ('conversion', 'tests', 'ada', 4000, '{"event_key":"purchase","event_id":"e1","tags":{"revenue":42}}');
        UPDATE counters SET project_changes = 3;
        """,
        """
        INSERT INTO exposures
            (user_id, experiment_id, experiment_key, variation_id, happened_at, flags, sdk_key, payload) VALUES
            ('bob', '7', 'checkout', '71', 3500, 0, 'tests', '{}');
        INSERT INTO variation_users VALUES ('7', '71', 1, 0, 0)
            ON CONFLICT DO UPDATE SET counted = counted + 1;
        INSERT INTO goal_events (user_id, goal, value, happened_at, received_at, sdk_key, sender_id, payload) VALUES
            ('bob', 'refund', 1.5, 4500, 4500, 'tests', 'id-1', '{}');
        INSERT INTO user_goals VALUES ('bob', '7', 'refund', 0, 0.0, 1, 1.5);
        """,
        """
        INSERT INTO audit (recorded_at, author, request_id, action, user_id, target, before, after) VALUES
            (5000, 'on-call', 'r-1', 'override.set', 'ada', '22', NULL, '{"variation_id":"9","source":"override"}');
        """,
        """
        INSERT INTO attributes (number, name, definition) VALUES
            (1, 'age', '{"type":"number"}'), (2, 'likes', '{"type":"selection","values":["One","Two"],"multiple":true}');
        INSERT INTO user_attributes VALUES ('ada', x'010A00000000000042401504034F6E65');
        INSERT INTO attribute_removals VALUES (3, '');
        INSERT INTO segments VALUES ('adults', '{"type":"custom_attribute","name":"age","match":"ge","value":18}');
        """,
        """
        INSERT INTO erasures VALUES (42, 6000);
        """,
        """
        INSERT INTO allocation_periods VALUES ('8', 2, 'tests', 2000, '[{"entityId":"71","endOfRange":10000}]');
        """,
        """
        INSERT INTO sticky_documents VALUES ('ada', 'id', '{"checkout__0":"control"}');
        """,
        """
        INSERT INTO profiles VALUES
            ('bea', x'02010043023333013908001307076F6E2D63616C6C04746573740101310200', NULL);
        UPDATE counters SET profiles = 2, assignments = 3;
        """,
        """
        UPDATE projects SET name = 'The tests';
        """,
        """
        UPDATE allocation_periods SET since = since;
        """,
        """
        UPDATE counters SET latest_time = 7000;
        """,
        """
        INSERT INTO frozen_results VALUES ('9', 8000, '', '{"experiment":{},"periods":[],"users":[]}');
        """,
        """
        INSERT INTO tracked_series VALUES (1, 'tests', '7', '{"sum":{"goal":"purchase","by":"count"},"from":0}', 1, 9, 0);
        UPDATE counters SET newest_series = 1;
        """,
        """
        INSERT INTO feed VALUES (1, 9000, x'060362656100');
        UPDATE counters SET feed_number = 1;
        UPDATE feed_state SET epoch = 7, counted_to = 1, row_count = 1, byte_count = 6;
        INSERT INTO feed_removals VALUES (42, 1, NULL);
        """,
        """
        INSERT INTO last_uses VALUES ('tests', 1, 'checkout', 'control', 20000);
        """,
        """
        INSERT INTO proposals VALUES ('5ba1', 'tests', 9000, 0,
            '{"author":"ada","basis":"1","method":"PUT","target":"/v1/experiments/7","experiments":["7"],"changes":[]}', x'7B7D');
        """,
        """
        INSERT INTO bandit_looks VALUES ('tests', '7', 9000, '{"users":5,"reason":"fewer than 100 users in a","chances":{}}');
        """,
        """
        UPDATE feed_state SET store_id = 99, former_epochs = '5,6,';
        """,
        """
        UPDATE variation_users SET not_running = 3;
        """,
        """
        INSERT INTO removed_users VALUES (3, 9000, 'ada');
        """,
        """
        UPDATE variation_goals SET valued = 1;
        """,
        """
        INSERT INTO webhooks VALUES ('ops', NULL, '{"url":"https://ops.example/","events":["*"],"enabled":true}', '{"position":3}');
        INSERT INTO experiment_findings VALUES ('tests', '7', 9000, '{"warnings":["primary"]}');
        """,
        """
        INSERT INTO definitions VALUES ('other', 'experiments', 'a', 1, 2, 1024, x'7B7D');
        """,
        // Only indexes.
        "",
    ]

    /// Makes a database as a program that knew only the first steps would have left it.
    private func makeDatabase(version: Int) throws {
        let old = try DatabaseConnection(database)
        try old.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
        for (step, rows) in zip(Migrations.sqlite.prefix(version), Self.rows) {
            try old.execute(String(decoding: step, as: UTF8.self))
            try old.execute(rows)
        }
        try old.execute("PRAGMA application_id = 0x48644674; PRAGMA user_version = \(version)")
    }

    @Test func `An export brings nothing up to date, under a server of an older release perhaps`() throws {
        try makeDatabase(version: 2)
        let said = try Command("export", "--database", database)
        #expect(said.end != .exit(0))
        #expect(said.errors.contains("it is 2"))
        #expect(try DatabaseConnection(database).text("PRAGMA user_version") == "2")
    }

    @Test func `Each version has its rows here`() {
        #expect(Self.rows.count == Migrations.sqlite.count, "add what the new step's tables hold")
    }

    @Test(arguments: 1...Migrations.sqlite.count, [true, false])
    func `A database of a former version has everything afterwards`(version: Int, byCommand: Bool) throws {
        try makeDatabase(version: version)
        let latest = Migrations.sqlite.count
        if byCommand {
            let said = try Command("migrate", "--database", database)
            #expect(said.end == .exit(0))
            let upToDate = "\(database) has version \(latest) already"
            #expect(
                said.output
                    == (version == latest ? upToDate : "\(database) was migrated from version \(version) to \(latest)"))
            let verified = try Command("migrate", "--database", database, "--verify", "20")
            let lines = verified.output.split(separator: "\n")
            #expect(verified.end == .exit(0) && lines.first == Substring(upToDate))
            // Projects are in databases since the second version.
            #expect(lines.dropFirst().isEmpty == (version < 2))
            #expect(lines.dropFirst().allSatisfy { $0.hasSuffix(" decisions: all equal") }, "\(verified.output)")
        }
        let server = try ServerProcess(database: database)
        try expectProfiles(server, of: version)
        if version >= 2 {
            try expectProjects(server, of: version)
            try expectEvents(server, of: version)
            // The oldest datafile has no experiments; the other one began a period.
            let query = "SELECT group_concat(number || ' ' || since) FROM allocation_periods WHERE experiment_id = '7'"
            #expect(try DatabaseConnection(database).text(query) == "2 2000")
            let statuses = "SELECT group_concat(number || ' ' || since || ' ' || status) FROM status_periods"
            #expect(try DatabaseConnection(database).text(statuses) == "2 2000 Running")
        }
        try expectAudit(server, of: version)
        if version >= 9 { try expectLayers(server) }
        if version >= 5 { try expectAttributes(server) }
        if version >= 8 {
            let document = try server.request("GET", "/v1/sticky/id/ada")
            #expect(document["assignments"] == ["checkout__0": "control"])
        }
        server.stop()
        #expect(try DatabaseConnection(database).text("PRAGMA integrity_check") == "ok")
    }

    /// A datafile as the releases before flags wrote it for `PUT /v1/experiments/checkout`.
    private static let datafileOfExperiment = #"""
        {"version":"4","accountId":"tests","projectId":"tests","revision":"4","sdkKey":"tests","groups":[],"events":[],
        "attributes":[],"audiences":[],"typedAudiences":[],"featureFlags":[],"rollouts":[],"holdouts":[],
        "localHoldouts":[],"experiments":[{"id":"7","key":"checkout","layerId":"7","status":"Running",
        "forcedVariations":{},"audienceIds":[],"variations":[{"id":"71","key":"control","weight":1},
        {"id":"72","key":"new","weight":1}],"trafficAllocation":[{"entityId":"71","endOfRange":5000},
        {"entityId":"72","endOfRange":10000}]}]}
        """#

    @Test func `Experiments that an earlier release made are served as flags, and the next change stores these`() throws
    {
        try makeDatabase(version: 2)
        try DatabaseConnection(database).execute(
            "UPDATE datafiles SET content = CAST('\(Self.datafileOfExperiment)' AS BLOB) WHERE revision = '4'")
        let server = try ServerProcess(database: database)
        let evaluated = try server.request("POST", "/v1/evaluations", #"{"user_id":"bob"}"#)["evaluations"].array
        #expect(evaluated?.map { $0["flag_key"] } == ["checkout"])
        let variation = try server.request("POST", "/v1/assign", #"{"user_id":"bob","experiment":"checkout"}"#)
        #expect(evaluated?.first?["value"] == variation["variation_key"] && variation["variation_key"].string != nil)
        #expect(try server.request("GET", "/v1/flags/checkout")["defined_by"] == "experiment")
        let fields = ["X-Optimizely-SDK-Key: tests"]
        let served = try server.request("GET", "/v1/datafile", fields: fields)
        #expect(served["revision"] == "4" && served["featureFlags"].array?.count == 1)
        let query = "SELECT coalesce(base, content) FROM datafiles ORDER BY version DESC LIMIT 1"
        #expect(try DatabaseConnection(database).text(query).contains(#""featureFlags":[],"#) == true)
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"traffic":50}"#).status == 200)
        let flags = "SELECT key FROM definitions WHERE list = 'featureFlags'"
        #expect(try DatabaseConnection(database).text(flags) == "checkout")
        // A server of an earlier release must not take the datafile without its elements for a project without any.
        let content = "SELECT length(content) FROM datafiles ORDER BY version DESC LIMIT 1"
        #expect(try DatabaseConnection(database).text(content) == "0")
        server.stop()
    }

    private func expectLayers(_ server: ServerProcess) throws {
        let override = try server.request("GET", "/v1/profiles/bea/experiments/33")
        #expect(override["variation_id"] == "9" && override["author"] == "on-call" && override["reason"] == "test")
        #expect(try server.request("DELETE", "/v1/profiles/bea/experiments/33").status == 204)
        let beneath = try server.request("GET", "/v1/profiles/bea/experiments/33")
        #expect(beneath["variation_id"] == "1" && beneath["source"] == "saved")
    }

    @Test(arguments: [(["shop", "app"], "shop"), (["shop", "default"], "default")])
    func `The default project is the one that requests meant before, or else the oldest`(
        keys: [String], expected: String
    ) throws {
        try makeDatabase(version: 1)
        let old = try DatabaseConnection(database)
        for step in Migrations.sqlite.prefix(8).dropFirst() { try old.execute(String(decoding: step, as: UTF8.self)) }
        for key in keys {
            try old.execute(
                "INSERT INTO datafiles (sdk_key, revision, content, stored_at, author) VALUES "
                    + "('\(key)', '4', CAST('\(Self.datafile)' AS BLOB), 2000, 'on-call')")
        }
        try old.execute("PRAGMA user_version = 8")
        let server = try ServerProcess(database: database)
        let projects = try server.request("GET", "/v1/projects")["projects"].array ?? []
        #expect(projects.map { $0["sdk_key"].string } == keys.sorted())
        #expect(projects.filter { $0["default"] == true }.map { $0["sdk_key"].string } == [expected])
        server.stop()
    }

    private func expectProfiles(_ server: ServerProcess, of version: Int) throws {
        let profile = try server.request("GET", "/v1/profiles/ada?detail=true")["experiment_bucket_map"]
        #expect(profile["11"]["variation_id"] == "1")
        #expect(profile["11"]["source"] == "saved")
        #expect(profile["11"]["assigned_at"] == "1970-01-01T00:00:00.001Z")
        #expect(profile["22"]["source"] == "override")
        #expect(try server.metric("holdfast_profiles") == (version >= 9 ? 2 : 1))
        #expect(try server.metric("holdfast_assignments") == (version >= 9 ? 3 : 2))
        let saved = try server.request("POST", "/ups/save", APITestSupport.profile("ada", ["11": "2", "22": "2"]))
        #expect(saved.text == APITestSupport.profile("ada", ["11": "2", "22": "9"]))
    }

    private func expectProjects(_ server: ServerProcess, of version: Int) throws {
        let project = try server.request("GET", "/v1/projects")["projects"].array?.first
        #expect(project?["sdk_key"] == "tests" && project?["default"] == true)
        #expect(project?["name"] == (version >= 10 ? "The tests" : ""))
        #expect(project?["created_at"] == "1970-01-01T00:00:01.000Z")
        let history = try server.request("GET", "/v1/datafile/history")
        #expect(history["datafiles"].array?.map { $0["revision"] } == ["4", "3"])
        #expect(history["datafiles"].array?.first?["author"] == "on-call")
        let fields = ["X-Optimizely-SDK-Key: tests", "Content-Type: application/json"]
        let forced = try server.client().request(
            "POST", "/v1/activate?experimentKey=checkout", #"{"userId":"eve"}"#, fields: fields)
        #expect(forced.json.array?.first?["variationKey"] == "new")
    }

    private func expectEvents(_ server: ServerProcess, of version: Int) throws {
        let exposures = try server.request("GET", "/v1/exposures").text
        #expect(exposures.contains(#""user_id":"ada""#))
        #expect(exposures.contains(#""user_id":"bob""#) == (version >= 3))
        let events = try server.request("GET", "/v1/events").text
        #expect(events.contains("purchase"))
        #expect(events.contains("refund") == (version >= 3))
    }

    private func expectAudit(_ server: ServerProcess, of version: Int) throws {
        let entries = try server.request("GET", "/v1/audit")["entries"].array ?? []
        let migrated = entries.filter { $0["action"] == "database.migrate" }
        #expect(migrated.count == (version < Migrations.sqlite.count ? 1 : 0))
        if let entry = migrated.first {
            #expect(entry["author"].string?.hasPrefix("user ") == true)
            #expect(entry["before"] == ["version": .integer(Int64(version))])
            #expect(entry["after"] == ["version": .integer(Int64(Migrations.sqlite.count))])
        }
        #expect(entries.contains { $0["request_id"] == "r-1" && $0["user_id"] == "ada" } == (version >= 4))
    }

    private func expectAttributes(_ server: ServerProcess) throws {
        let attributes = try server.request("GET", "/v1/profiles/ada/attributes")["attributes"]
        #expect(attributes == ["age": 36, "likes": ["One"]])
        #expect(try server.request("GET", "/v1/segments/adults?size=true")["size"] == 1)
    }
}
