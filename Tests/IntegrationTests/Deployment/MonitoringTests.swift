import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

#if PostgreSQL
    import PostgreSQLTestSupport
#endif

/// The metrics of a server that was used, and what refers to them.
@Suite struct MonitoringTests {
    private static let tool = Tool.promtool.isExpected

    @Test func `Every metric that is named anywhere is on the page, and the manual lists all of them`() throws {
        let metrics = try Self.metricsOfUsedServer() + Self.metricsOnPostgreSQL() + Self.metricsOfEdge()
        let families = Set(metrics.matches(of: #/# TYPE (\w+) /#).map { String($0.output.1) })
        #expect(families.count > 45)
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Monitoring.md", encoding: .utf8)
        let listed = article.split(separator: "## All metrics").last.map { Self.names(in: String($0)) } ?? []
        #expect(listed.subtracting(families).isEmpty, "\(listed.subtracting(families)) do not exist")
        #expect(families.subtracting(listed).isEmpty, "\(families.subtracting(listed)) are not in the manual")
        let documents = [
            article, try DeploymentFile.text("alerts.yml"), try DeploymentFile.text("alerts.test.yml"),
            try DeploymentFile.text("grafana-dashboard.json"), try DeploymentFile.text("restore-drill"),
        ]
        for document in documents {
            let named = Self.names(in: document).map { $0.replacing(#/_(bucket|sum|count)$/#, with: "") }
            #expect(!named.isEmpty)
            // docker/backup and `holdfast export` write them.
            let known = families.union([
                "holdfast_backup_last_success_timestamp_seconds", "holdfast_export_complete_timestamp_seconds",
            ])
            #expect(Set(named).subtracting(known).isEmpty)
        }
    }

    private static func metricsOfEdge() throws -> String {
        let fixture = try EdgeFixture()
        let edge = try fixture.edge()
        defer {
            edge.stop()
            fixture.proxy.close()
        }
        return try edge.request("GET", "/metrics").text
    }

    @Test func `Labels that alerts and the dashboard use exist`() throws {
        let metrics = try Self.metricsOfUsedServer()
        for sample in [
            #"holdfast_http_requests_total{method="POST",route="/ups/save",status="200"} "#,
            #"holdfast_http_request_seconds_bucket{method="POST",route="/ups/save",le="0.25"} "#,
            #"holdfast_store_commit_seconds_bucket{le="0.5"} "#, #"holdfast_datafile_version{sdk_key="default"} "#,
            #"holdfast_decisions_total{source="bucketed"} 1"#, #"holdfast_events_stored_total{kind="goal"} 1"#,
            #"holdfast_build_info{version=""#, "holdfast_store_writable 1\n",
        ] {
            #expect(metrics.contains(sample), "\(sample)")
        }
    }

    @Test func `Every alert is in the manual, and has a test`() throws {
        let alerts = try DeploymentFile.text("alerts.yml").matches(of: #/- alert: (\w+)/#).map { String($0.output.1) }
        #expect(alerts.count >= 12)
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Monitoring.md", encoding: .utf8)
        let test = try DeploymentFile.text("alerts.test.yml")
        for alert in alerts {
            #expect(article.contains("| `\(alert)` |"), "\(alert)")
            #expect(test.contains(#"alertname="\#(alert)""#), "\(alert)")
        }
    }

    @Test func `A failing disk shows`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        let disk = try FaultyDisk(under: database, tracksWrites: false, seed: 1)
        let server = try ServerProcess(database: database, environment: disk.environment)
        #expect(try server.metric("holdfast_store_writable") == 1)
        disk.fail([.writeFull], chance: 1_000)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 503)
        #expect(try server.metric("holdfast_store_writable") == 0)
        disk.heal()
        #expect(try server.becomesReady())
        #expect(try server.metric("holdfast_store_writable") == 1)
        server.stop()
    }

    @Test(.enabled(if: tool, "promtool of Debian's package prometheus is not installed"))
    func `Prometheus takes the configuration, and the alerts fire when they should`() throws {
        let folder = DeploymentFile.folder
        try Tool.promtool.run("check", "rules", "\(folder)/alerts.yml")
        try Tool.promtool.run("test", "rules", "\(folder)/alerts.test.yml")
        try Tool.promtool.run("check", "config", "--syntax-only", "\(folder)/prometheus.yml")
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `Grafana's schemas have every member of the dashboard`() throws {
        let output = try runAt(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/dashboard.py", "\(DeploymentFile.folder)/grafana-dashboard.json"])
        #expect(output.contains("33 panels"))
    }

    @Test(.enabled(if: tool, "promtool of Debian's package prometheus is not installed"))
    func `Prometheus takes every expression of the dashboard, and every line of the metrics`() throws {
        let dashboard = try JSONParser().parse(try DeploymentFile.text("grafana-dashboard.json"))
        let targets = (dashboard["panels"].array ?? []).flatMap { $0["targets"].array ?? [] }
        let expressions = targets.compactMap { $0["expr"].string }
        #expect(expressions.count > 30)
        let rules = expressions.enumerated().map { index, expression in
            let expression = expression.replacing("$__rate_interval", with: "5m").replacing("$instance", with: ".*")
                .replacing("'", with: "''")
            return "  - record: dashboard:\(index)\n    expr: '\(expression)'\n"
        }
        let directory = try TemporaryDirectory()
        let text = "groups:\n- name: dashboard\n  rules:\n" + rules.joined()
        try Tool.promtool.run("check", "rules", try directory.write(text, to: "rules.yml"))
        let metrics = try directory.write(try Self.metricsOfUsedServer(), to: "metrics")
        let child = try ChildProcess(Tool.promtool.path(), ["check", "metrics"], input: metrics)
        _ = child.wait()
        // It may find fault with names and help texts (status 3), but must be able to read all of it.
        #expect(!child.errors.text.contains("error while linting"), "\(child.errors.text)")
    }

    /// Uses a server so that every metric has a sample, and returns `/metrics`.
    private static func metricsOfUsedServer() throws -> String {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let experiment = #"{"id":"7001","variations":["control","new"]}"#
        #expect(try server.request("PUT", "/v1/experiments/checkout", experiment).status == 201)
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"ada","experiment":"checkout"}"#)
        #expect(assigned.status == 200)
        let goal = #"{"user_id":"ada","goal":"purchase"}"#
        #expect(try server.request("POST", "/v1/events", goal).status == 200)
        let text = try server.request("GET", "/metrics").text
        server.stop()
        return text
    }

    /// Returns `/metrics` of a server on PostgreSQL, which has some of its own.
    private static func metricsOnPostgreSQL() throws -> String {
        #if PostgreSQL
            let database = try TestDatabase(.postgreSQL)
            let server = try ServerProcess(database: database.url)
            let text = try server.request("GET", "/metrics").text
            server.stop()
            return text
        #else
            return ""
        #endif
    }

    private static func names(in text: String) -> Set<String> {
        Set(text.matches(of: #/\b(holdfast|process)_[a-z_]*[a-z]\b/#).map { String($0.output.0) })
    }
}
