import APITestSupport
import Foundation
import Glibc
import JSON
import PostgreSQLTestSupport
import ProcessTestSupport
import Testing

/// Traces of requests, as a collector gets them that checks them by OpenTelemetry's published protocol.
@Suite struct TraceTests {
    private static let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    private static let parent = "00f067aa0ba902b7"
    private static let user = "ada.lovelace@example.com"

    /// The collector, and the options of a server that sends to it.
    private struct Collector {
        let process: ChildProcess
        let options: [String]

        /// - Parameter authorization: what it requires in the header field, if anything.
        init(authorization: String? = nil) throws {
            process = try ChildProcess(
                PythonPackages.interpreter,
                ["\(PythonPackages.scripts)/trace_receiver.py"] + (authorization.map { [$0] } ?? []))
            let port = try #require(process.output.line(0), "\(process.errors.text)")
            options = ["--traces-endpoint", "http://127.0.0.1:\(port)"]
        }

        /// What has arrived, after the end of all servers.
        func spans() throws -> [JSONValue] {
            process.send(SIGKILL)
            _ = process.wait()
            let spans = try process.output.all.dropFirst().map { try JSONParser().parse($0) }
            for span in spans { #expect(span["invalid"].isNull, "\(span)") }
            return spans
        }
    }

    private static func ask(_ user: String) -> String { #"{"user_id":"\#(user)","experiment":"checkout"}"# }

    private func field(sampled: Bool, trace: String = trace) -> [String] {
        ["traceparent: 00-\(trace)-\(Self.parent)-0\(sampled ? 1 : 0)"]
    }

    @Test(
        .enabled(if: PythonPackages.areInstalled, PythonPackages.missing),
        arguments: [HistoryRun.Setting.Database.sqlite, .postgreSQL(.postgreSQL)])
    func `A request continues the trace of its caller, and no span names its user`(
        kind: HistoryRun.Setting.Database
    ) throws {
        let database = try SharedDatabase.make(kind, in: TemporaryDirectory())
        let collector = try Collector()
        let server = try ServerProcess(
            database: database.location,
            database.options + collector.options + ["--access-log", "--traces-service", "shop"])
        #expect(try server.request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let response = try server.request(
            "POST", "/v1/assign", Self.ask(Self.user), fields: field(sampled: true) + ["tracestate: vendor=1"])
        #expect(response.status == 200)
        let own = try #require(response.field("traceparent")).split(separator: "-").map(String.init)
        #expect(own.count == 4 && own[1] == Self.trace && own[2] != Self.parent && own[3] == "01")
        // The caller records nothing, or says nothing that is valid.
        let quiet = try server.request("GET", "/v1/profiles/\(Self.user)", fields: field(sampled: false))
        #expect(quiet.field("traceparent")?.hasSuffix("-00") == true)
        let invalid = try server.request(
            "GET", "/v1/profiles/\(Self.user)", fields: field(sampled: true, trace: Self.trace.uppercased()))
        let other = try #require(invalid.field("traceparent")).split(separator: "-")[1]
        #expect(other != Self.trace)
        #expect(try server.request("GET", "/v1/profile/\(Self.user)").status == 404)
        #expect(try server.request("GET", "/readyz").status == 200)
        server.stop()

        let lines = try server.child.errors.all.map { try JSONParser().parse($0) }
        let logged = lines.filter { $0["message"] == "request" && $0["trace_id"].string == Self.trace }
        #expect(logged.map { $0["status"].integer } == [200, 200])

        let spans = try collector.spans()
        #expect(spans.allSatisfy { $0["service"] == "shop" })
        for span in spans {
            let text = String(decoding: span.encoded(), as: UTF8.self)
            #expect(!text.contains("lovelace"), "\(text)")
        }
        let ofTrace = spans.filter { $0["trace"].string == Self.trace }
        let request = try #require(ofTrace.first { $0["kind"].integer == 2 })
        #expect(request["name"] == "POST /v1/assign")
        #expect(request["parent"].string == Self.parent)
        #expect(request["id"].string == own[2])
        #expect(request["attributes"]["http.request.method"] == "POST")
        #expect(request["attributes"]["http.route"] == "/v1/assign")
        #expect(request["attributes"]["url.path"] == "/v1/assign")
        #expect(request["attributes"]["http.response.status_code"] == 200)
        let work = ofTrace.filter { $0["kind"].integer == 3 }
        #expect(Set(work.compactMap { $0["name"].string }) == ["profile", "assign"])
        #expect(work.last?["name"] == "assign")
        for span in work {
            #expect(span["parent"] == request["id"])
            #expect(span["attributes"]["db.system.name"] == (kind.isSQLite ? "sqlite" : "postgresql"))
        }
        #expect(ofTrace.count == work.count + 1)
        #expect(spans.contains { $0["trace"].string == String(other) && $0["name"] == "GET /v1/profiles/{user_id}" })
        #expect(spans.contains { $0["name"] == "GET" && $0["attributes"]["http.response.status_code"] == 404 })
        #expect(!spans.contains { $0["name"] == "GET /readyz" })
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `A collector gets the header fields of a file, which is read again, and no log has their values`() throws {
        let directory = try TemporaryDirectory()
        let collector = try Collector(authorization: "Bearer second-secret")
        let headers = try directory.write("Authorization: Bearer first-secret\nX-Scope-OrgID: shop\n", to: "headers")
        let server = try ServerProcess(
            database: directory.file("holdfast.db"), collector.options + ["--traces-headers-file", headers])
        func ask() throws {
            #expect(try server.request("GET", "/v1/profiles/ada", fields: field(sampled: true)).status == 404)
        }
        try ask()
        // What it refuses will not be sent again.
        #expect(try server.awaitMetric("holdfast_trace_spans_dropped_total") { $0 > 0 } > 0)
        #expect(try server.metric("holdfast_trace_spans_sent_total") == 0)
        _ = try directory.write("Authorization: Bearer second-secret\n", to: "headers")
        try ask()
        #expect(try server.awaitMetric("holdfast_trace_spans_sent_total") { $0 > 0 } > 0)
        server.stop()
        #expect(!server.child.errors.text.contains("-secret") && server.child.errors.text.contains("401"))
        #expect(try !collector.spans().isEmpty)
    }

    @Test(arguments: [
        ("Authorization Bearer secret\n", 0o600, "line 1 of the file of headers"),
        ("X-Scope: a\nAuthorization\u{1}: secret\n", 0o600, "line 2 of the file of headers"),
        ("Authorization: secret\n", 0o644, "can be read or written by others"),
    ])
    func `A file of header fields that cannot be used stops the start, and its values are not told`(
        text: String, mode: Int, reason: String
    ) throws {
        let directory = try TemporaryDirectory()
        let headers = try directory.write(text, to: "headers", mode: mode)
        let command = try Command(
            "serve", "--database", directory.file("holdfast.db"), "--traces-endpoint", "http://127.0.0.1:9",
            "--traces-headers-file", headers)
        #expect(command.end == .exit(78) && command.errors.contains(reason), "\(command)")
        #expect(!command.errors.contains("secret"))
    }

    @Test(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `A trace goes on from an edge to its upstream`() throws {
        let directory = try TemporaryDirectory()
        let collector = try Collector()
        let upstream = try ServerProcess(database: directory.file("upstream.db"), collector.options)
        #expect(try upstream.request("PUT", "/v1/experiments/checkout", AssignSamples.definition).status == 201)
        let edge = try ServerProcess(
            database: directory.file("edge.db"),
            collector.options + ["--upstream", "http://127.0.0.1:\(upstream.port)", "--traces-service", "edge"],
            environment: ["HOLDFAST_UPSTREAM_TIMEOUT": "20s"])
        #expect(try edge.becomesReady())
        #expect(try edge.awaitMetric("holdfast_edge_copy_complete") { $0 == 1 } == 1)
        let enrolled = try edge.request("POST", "/v1/assign", Self.ask(Self.user), fields: field(sampled: true))
        #expect(enrolled.status == 200)
        let passedOn = "5bf92f3577b34da6a3ce929d0e0e4736"
        let results = try edge.request(
            "GET", "/v1/profiles/\(Self.user)/events", fields: field(sampled: true, trace: passedOn))
        #expect(results.status == 200, "\(results.text)")
        edge.stop()
        upstream.stop()

        let spans = try collector.spans()
        for span in spans { #expect(!String(decoding: span.encoded(), as: UTF8.self).contains("lovelace")) }
        func path(_ trace: String) throws -> [String] {
            var path: [String] = []
            var parent = Self.parent
            while let next = spans.last(where: { $0["trace"].string == trace && $0["parent"].string == parent }) {
                path.append("\(next["service"].string ?? "") \(next["name"].string ?? "")")
                parent = next["id"].string ?? ""
            }
            return path
        }
        #expect(
            try path(Self.trace).prefix(4) == [
                "edge POST /v1/assign", "edge assign", "edge POST /edge/v1/changes", "holdfast POST /edge/v1/changes",
            ])
        #expect(
            try path(passedOn).prefix(3) == [
                "edge GET /v1/profiles/{user_id}/events", "edge GET", "holdfast GET /v1/profiles/{user_id}/events",
            ])
    }

    @Test func `Without a collector a server serves, counts what it drops, and stops`() throws {
        let directory = try TemporaryDirectory()
        // A port where nobody listens, for as long as this socket has it.
        let closed = try FaultyProxy(to: 9)
        defer { closed.close() }
        closed.fault = .refuses
        let server = try ServerProcess(
            database: directory.file("holdfast.db"), ["--traces-endpoint", "http://127.0.0.1:\(closed.port)/v1/traces"])
        let client = try server.client()
        for _ in 0..<2_100 {
            #expect(try client.request("GET", "/v1/profiles/ann").status == 404)
        }
        #expect(try server.awaitMetric("holdfast_trace_spans_dropped_total") { $0 > 0 } > 0)
        #expect(try server.request("GET", "/metrics").text.contains("\nholdfast_trace_spans_sent_total 0\n"))
        server.stop()
        let lines = server.child.errors.all
        #expect(lines.contains { $0.contains("spans cannot be sent") })
        #expect(lines.contains { $0.contains("spans were not sent in time") })
    }

    @Test func `Without the option nothing is traced`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"), ["--access-log"])
        let response = try server.request("GET", "/v1/profiles/ann", fields: field(sampled: true))
        #expect(response.field("traceparent") == nil)
        #expect(try server.request("GET", "/metrics").text.contains("\nholdfast_trace_spans_sent_total 0\n"))
        server.stop()
        #expect(!server.child.errors.text.contains("trace_id"))
    }

    @Test(arguments: [
        (["--traces-endpoint", "collector:4318"], "--traces-endpoint must be an http or https URL"),
        (["--traces-endpoint", "http://ann:secret@collector:4318"], "without user and password"),
        (["--traces-sample", "2"], "--traces-sample must be a number from 0 to 1, such as 0.05; got '2'"),
    ])
    func `A wrong option stops the start`(options: [String], error: String) throws {
        let directory = try TemporaryDirectory()
        let child = try ChildProcess(
            Executable.holdfast, ["serve", "--listen", "127.0.0.1:0", "--database", directory.file("h.db")] + options)
        #expect(child.wait() == .exit(78))
        #expect(child.errors.text.contains(error), "\(child.errors.text)")
    }
}
