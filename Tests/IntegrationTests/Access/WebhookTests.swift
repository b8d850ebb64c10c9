import APITestSupport
import Foundation
import JSON
import PostgreSQLTestSupport
import ProcessTestSupport
import Testing

/// Webhooks against a receiver that fails, hangs, moves away and comes back.
@Suite(.enabled(if: PythonPackages.areInstalled, PythonPackages.missing)) struct WebhookTests {
    /// Long enough for a busy machine, and short enough to be waited for.
    private static let options = ["--webhook-private-addresses", "--webhook-timeout", "2s"]

    /// `Python/webhook_receiver.py`
    private final class Receiver {
        let child: ChildProcess
        let port: UInt16
        var secrets: [String] = []

        init(port: UInt16 = 0) throws {
            child = try ChildProcess(
                PythonPackages.interpreter, ["\(PythonPackages.scripts)/webhook_receiver.py", "\(port)"])
            guard let line = child.output.first(where: { !$0.isEmpty }), let port = UInt16(line) else {
                throw TestFailure("the receiver does not start: \(child.errors.text)")
            }
            self.port = port
        }

        deinit {
            child.send(SIGKILL)
        }

        var url: String { "http://127.0.0.1:\(port)/hook" }

        func behave(_ members: String = "") throws {
            let secrets = "[\(secrets.map { "\"\($0)\"" }.joined(separator: ","))]"
            let separator = members.isEmpty ? "" : ","
            let client = try HTTPClient(port: port)
            #expect(
                try client.request("POST", "/behave", #"{"secrets":\#(secrets)\#(separator)\#(members)}"#).status == 200
            )
        }

        func messages(_ list: String = "received") throws -> [JSONValue] {
            try HTTPClient(port: port).request("GET", "/received")[list].array ?? []
        }

        /// Waits up to a minute for messages.
        func wait(_ list: String = "received", until isEnough: ([JSONValue]) -> Bool) throws -> [JSONValue] {
            let deadline = ContinuousClock.now + .seconds(60)
            while true {
                let all = try messages(list)
                if isEnough(all) { return all }
                guard .now < deadline else { throw TestFailure("messages are missing in '\(list)'; there are \(all)") }
                usleep(20_000)
            }
        }
    }

    /// Makes a webhook for experiments, and has the receiver check its signatures.
    private func makeWebhook(
        _ server: ServerProcess, _ receiver: Receiver, _ members: String = #""events":["experiment.*"]"#
    ) throws {
        let made = try server.request("PUT", "/v1/webhooks/ops", #"{"url":"\#(receiver.url)",\#(members)}"#)
        #expect(made.status == 201, "\(made.text)")
        receiver.secrets = [try #require(made["secret"].string)]
        try receiver.behave()
    }

    private func define(_ server: ServerProcess, _ keys: [String]) throws {
        for key in keys {
            #expect(try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":["a","b"]}"#).status == 201)
        }
    }

    private func targets(_ messages: [JSONValue]) -> [String] {
        messages.compactMap { $0.object?["body"]?.object?["data"]?.object?["target"]?.string }
    }

    private func ids(_ messages: [JSONValue]) -> [String] { messages.compactMap { $0.object?["id"]?.string } }

    /// Waits up to a minute for the state of the webhook.
    private func state(_ server: ServerProcess, _ isRight: (TestResponse) -> Bool) throws -> TestResponse {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let shown = try server.request("GET", "/v1/webhooks/ops")
            if isRight(shown) { return shown }
            guard .now < deadline else { throw TestFailure("the state stays \(shown.text)") }
            usleep(20_000)
        }
    }

    @Test func `Events arrive signed and in order, whatever the receiver does meanwhile`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"), Self.options)
        let receiver = try Receiver()
        try makeWebhook(server, receiver)
        try define(server, ["one"])
        _ = try receiver.wait { $0.count == 1 }
        let other = try Receiver()
        for behaviour in [#""status":500"#, #""hang":true"#, #""redirect":"\#(other.url)""#] {
            let before = try receiver.messages().count
            let failed = try receiver.messages("refused").count
            try receiver.behave(behaviour)
            try define(server, ["x\(before)", "y\(before)"])
            let tried = try receiver.wait("refused") { $0.count > failed }
            #expect(Set(targets(Array(tried.dropFirst(failed)))) == ["x\(before)"])
            let shown = try state(server) { $0["state"]["status"] == "failing" }
            #expect(shown["state"]["oldest_waiting_at"].string != nil)
            try receiver.behave()
            let all = try receiver.wait { $0.count == before + 2 }
            // What was tried again has the same id.
            #expect(ids(all)[before] == ids(tried).last)
        }
        let all = try receiver.messages()
        #expect(targets(all) == ["one", "x1", "y1", "x3", "y3", "x5", "y5"])
        #expect(all.allSatisfy { $0.object?["valid"] == true })
        #expect(Set(ids(all)).count == 7)
        #expect(try other.messages().isEmpty)
        // The body of a response does not matter, however long it is.
        try receiver.behave(#""endless":true"#)
        try define(server, ["last"])
        let last = try receiver.wait("refused") { targets($0).contains("last") }
        let end = try state(server) { $0["state"]["deliveries"].array?.first?["id"].string == ids(last).last }
        #expect(end["state"]["status"] == "active", "\(end.text)")
        let metrics = try server.request("GET", "/metrics").text
        #expect(metrics.contains(#"holdfast_webhook_paused{webhook="ops"} 0"#))
        #expect(metrics.contains(#"holdfast_webhook_deliveries_total{webhook="ops",outcome="accepted"} 8"#))
        server.stop()
    }

    @Test(arguments: [HistoryRun.Setting.Database.sqlite, .postgreSQL(.postgreSQL)])
    func `When the server that sends is killed, another goes on, and nothing is lost`(
        database: HistoryRun.Setting.Database
    ) throws {
        let directory = try TemporaryDirectory()
        let location = try SharedDatabase.make(database, in: directory)
        let options = Self.options + location.options
        var servers = [
            try ServerProcess(database: location.location, options),
            try ServerProcess(database: location.location, options),
        ]
        let receiver = try Receiver()
        try makeWebhook(servers[0], receiver)
        var keys: [String] = []
        for round in 0..<3 {
            // Whoever sends has sent one that is neither accepted nor refused yet.
            let tried = try receiver.messages("refused").count
            try receiver.behave(#""hang":true"#)
            let added = (0..<4).map { "e\(round)n\($0)" }
            try define(servers[round % 2], added)
            keys += added
            _ = try receiver.wait("refused") { $0.count > tried }
            servers[round % 2].kill()
            try receiver.behave()
            let all = try receiver.wait { Set(targets($0)).isSuperset(of: keys) }
            #expect(unique(targets(all)) == keys)
            servers[round % 2] = try ServerProcess(database: location.location, options)
        }
        let all = try receiver.messages()
        #expect(all.allSatisfy { $0.object?["valid"] == true })
        // A repeat has the id of the first.
        #expect(Set(ids(all)).count == keys.count)
        for server in servers { server.stop() }
    }

    /// Without repeats.
    private func unique(_ texts: [String]) -> [String] {
        texts.enumerated().filter { texts.firstIndex(of: $0.element) == $0.offset }.map(\.element)
    }

    @Test func `Two servers send each event once, and after a restart of both nothing is missing`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        var servers = [
            try ServerProcess(database: database, Self.options), try ServerProcess(database: database, Self.options),
        ]
        let receiver = try Receiver()
        try makeWebhook(servers[1], receiver)
        let first = (0..<10).map { "a\($0)" }
        for (index, key) in first.enumerated() { try define(servers[index % 2], [key]) }
        #expect(targets(try receiver.wait { $0.count >= 10 }) == first)
        let port = receiver.port
        receiver.child.send(SIGKILL)
        _ = receiver.child.wait()
        let second = (0..<10).map { "b\($0)" }
        try define(servers[0], second)
        for server in servers { server.kill() }
        servers = [
            try ServerProcess(database: database, Self.options), try ServerProcess(database: database, Self.options),
        ]
        let again = try Receiver(port: port)
        again.secrets = receiver.secrets
        try again.behave()
        let all = try again.wait { $0.count >= 10 }
        #expect(targets(all) == second)
        #expect(all.allSatisfy { $0.object?["valid"] == true })
        for server in servers { server.stop() }
    }

    @Test func `A receiver that is gone is paused, shown, and goes on where it stopped once it is enabled again`()
        throws
    {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"), Self.options)
        let receiver = try Receiver()
        try makeWebhook(server, receiver, #""events":["experiment.put"]"#)
        try receiver.behave(#""status":410"#)
        try define(server, ["one", "two"])
        let paused = try state(server) { $0["state"]["status"] == "paused" }
        #expect(paused["state"]["reason"] == "the receiver responds 410, which means that it is gone")
        #expect(try receiver.messages("refused").count == 1)
        // The server looks at its webhooks each second.
        #expect(
            try server.awaits {
                try $0.request("GET", "/readyz")["detail"].string?.contains("the webhook 'ops' is paused") == true
            })
        #expect(try server.request("GET", "/metrics").text.contains(#"holdfast_webhook_paused{webhook="ops"} 1"#))
        #expect(try server.request("GET", "/v1/audit?action=webhook.pause")["entries"].array?.first?["target"] == "ops")
        try receiver.behave()
        #expect(try server.request("PUT", "/v1/webhooks/ops", #"{"enabled":true}"#).status == 200)
        #expect(targets(try receiver.wait { $0.count == 2 }) == ["one", "two"])
        _ = try state(server) { $0["state"]["status"] == "active" }
        server.stop()
    }

    @Test func `A receiver that fails for too long is paused`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(
            database: directory.file("holdfast.db"), Self.options + ["--webhook-retries", "3s"])
        let receiver = try Receiver()
        try makeWebhook(server, receiver)
        try receiver.behave(#""status":503"#)
        try define(server, ["one"])
        let paused = try state(server) { $0["state"]["status"] == "paused" }
        #expect(paused["state"]["reason"] == "the receiver must respond 2xx; got 503")
        #expect(try receiver.messages("refused").count > 1)
        server.stop()
    }

    @Test func `An address that is not public is refused when it is connected to, whatever its name`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let receiver = try Receiver()
        let hosts = [
            "127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.0.1",
            "169.254.169.254", "100.64.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[fd00::1]", "[fe80::1]",
            "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
        ]
        for host in hosts {
            let url = "https://\(host):\(receiver.port)/"
            let made = try server.request("PUT", "/v1/webhooks/ops", #"{"url":"\#(url)"}"#)
            #expect([200, 201].contains(made.status), "\(made.text)")
            let tested = try server.request("POST", "/v1/webhooks/ops/test")
            #expect(tested["failure"].string?.hasSuffix("its address is not public") == true, "\(host): \(tested.text)")
        }
        let plain = try server.request("PUT", "/v1/webhooks/ops", #"{"url":"http://127.0.0.1/"}"#)
        #expect(plain.status == 422)
        server.stop()
    }

    @Test func `Secrets are made, rotated, or read from a file; messages have the form that the receiver wants`() throws
    {
        let directory = try TemporaryDirectory()
        let secret = "whsec_" + Data((0..<32).map { UInt8($0) }).base64EncodedString()
        let file = try directory.write("\(secret)\n", to: "team")
        let folder = URL(fileURLWithPath: file).deletingLastPathComponent().path
        let server = try ServerProcess(
            database: directory.file("holdfast.db"),
            Self.options + ["--webhook-secrets", folder, "--public-url", "https://hold.example/"])
        let receiver = try Receiver()
        try makeWebhook(server, receiver)
        let rotated = try server.request("POST", "/v1/webhooks/ops/rotate")
        let new = try #require(rotated["secret"].string)
        for secrets in [receiver.secrets, [new]] {
            receiver.secrets = secrets
            try receiver.behave()
            #expect(try server.request("POST", "/v1/webhooks/ops/test")["status"] == 200)
        }
        var all = try receiver.messages()
        #expect(all.map { $0.object?["valid"] } == [true, true])
        #expect(all.map { $0.object?["signatures"] } == [2, 2])
        let named = try server.request(
            "PUT", "/v1/webhooks/ops", #"{"secret_file":"team","format":"slack","events":["experiment.put"]}"#)
        #expect(named.status == 200 && named["secret_file"] == "team", "\(named.text)")
        receiver.secrets = [secret]
        try receiver.behave()
        try define(server, ["check<out"].map { $0.replacingOccurrences(of: "<", with: "%3C") })
        all = try receiver.wait { $0.count == 3 }
        #expect(all[2].object?["valid"] == true)
        let text = all[2].object?["body"]?.object?["text"]?.string ?? ""
        #expect(text.contains("the experiment 'check&lt;out'"), "\(text)")
        #expect(
            text.contains("<https://hold.example/console/#/experiments/check%3Cout?project=default|Open the console>"))
        #expect(try server.request("PUT", "/v1/webhooks/ops", #"{"format":"teams"}"#).status == 200)
        #expect(try server.request("POST", "/v1/webhooks/ops/test")["status"] == 200)
        let card = try receiver.messages()[3].object?["body"]?.object?["attachments"]?.array?[0].object
        #expect(card?["contentType"] == "application/vnd.microsoft.card.adaptive")
        // Secrets stay where they are.
        let everything = try ["/v1/webhooks", "/v1/webhooks/ops", "/v1/audit", "/metrics"].map {
            try server.request("GET", $0).text
        }
        for text in everything + [server.child.errors.text] {
            #expect(!text.contains("whsec_") && !text.contains(String(new.dropFirst(6))))
        }
        server.stop()
    }

    @Test func `An erasure is told without the user`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"), Self.options)
        let receiver = try Receiver()
        try makeWebhook(server, receiver, #""events":["profile.*"]"#)
        let body = #"{"user_id":"ann@example.com","experiment_bucket_map":{"77":{"variation_id":"b"}}}"#
        #expect(try server.request("POST", "/ups/save", body).status == 200)
        #expect(try server.request("DELETE", "/v1/profiles/ann@example.com").status == 200)
        let all = try receiver.wait { $0.count == 1 }
        #expect(all[0].object?["body"]?.object?["type"] == "profile.erase")
        #expect(!"\(all)".contains("ann"))
        server.stop()
    }

    @Test func `A broken split is told once by two servers`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        let servers = [
            try ServerProcess(database: database, Self.options), try ServerProcess(database: database, Self.options),
        ]
        let receiver = try Receiver()
        try makeWebhook(servers[0], receiver, #""events":["experiment.warning"]"#)
        let body = #"{"id":"7","variations":[{"key":"a","id":"71"},{"key":"b","id":"72"}]}"#
        #expect(try servers[0].request("PUT", "/v1/experiments/e", body).status == 201)
        let exposures = (0..<200).map { #"{"user_id":"u\#($0)","experiment":"e","variation_id":"71"}"# }
        let sent = try servers[0].request("POST", "/v1/exposures", "[\(exposures.joined(separator: ","))]")
        #expect(sent.status == 200)
        // The monitor looks a second after the start, and then each minute.
        for server in servers { server.stop() }
        let again = [
            try ServerProcess(database: database, Self.options), try ServerProcess(database: database, Self.options),
        ]
        let all = try receiver.wait { !$0.isEmpty }
        #expect(all.count == 1 && targets(all) == ["e"])
        let data = all[0].object?["body"]?.object?["data"]?.object
        #expect(data?["after"] == ["warnings": ["sample_ratio"]])
        for server in again { server.stop() }
    }
}
