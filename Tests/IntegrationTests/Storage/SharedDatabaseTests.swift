import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Two server processes on one database file.
@Suite struct SharedDatabaseTests {
    private let directory: TemporaryDirectory
    private let servers: [ServerProcess]

    init() throws {
        directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
    }

    @Test func `What one saves the other answers at once`() throws {
        let clients = [try servers[0].client(), try servers[1].client()]
        for round in 0..<400 {
            let (writer, reader) = (clients[round % 2], clients[(round + 1) % 2])
            let text = profile("ada", ["11": "v\(round)"])
            #expect(try writer.request("POST", "/ups/save", text).text == text)
            // Twice, as the second response comes from the reader's cache; then the next round makes that stale.
            #expect(try reader.request("GET", "/v1/profiles/ada").text == text)
            #expect(try reader.request("POST", "/ups/lookup", #"{"user_id":"ada"}"#).text == text)
        }
    }

    @Test func `A reader who waits for the feed is woken by what another server commits`() throws {
        let (reader, writer) = (try servers[0].client(), try servers[1].client())
        var cursor = try JSONParser().parse(reader.request("GET", "/v1/feed?limit=0").text)["cursor"].string ?? ""
        for round in 0..<5 {
            let started = ContinuousClock.now
            try reader.send(HTTPClient.head("GET", "/v1/feed?wait=30&after=\(cursor)", nil))
            let save = profile("ada", ["11": "v\(round)"])
            #expect(try writer.request("POST", "/ups/save", save).status == 200)
            let lines = try reader.receive().text.split(separator: "\n").map { try JSONParser().parse(String($0)) }
            #expect(lines.first?["variation_id"] == .string("v\(round)"))
            #expect(ContinuousClock.now - started < .seconds(25))
            cursor = lines.last?["cursor"].string ?? ""
        }
    }

    @Test func `Flags that no server has used for some days are stale`() throws {
        let client = try servers[1].client()
        for key in ["old", "used", "new"] {
            #expect(try client.request("PUT", "/v1/flags/\(key)", #"{"type":"boolean"}"#).status == 201)
        }
        let deadline = ContinuousClock.now + .seconds(60)
        while try servers[0].request("GET", "/v1/flags/new").status != 200 {
            guard .now < deadline else { throw TestFailure("another server's flag is not seen") }
        }
        func evaluate(_ server: ServerProcess, _ keys: String) throws {
            let fields = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
            let decided = try server.request("POST", "/v1/decide?\(keys)", #"{"userId":"ada"}"#, fields: fields)
            #expect(decided.status == 200)
        }
        try evaluate(servers[0], "keys=old&keys=used")
        // It writes what it has noted.
        servers[0].stop()
        #expect(try client.request("GET", "/v1/flags/old")["last_evaluated_on"].string != nil)
        let database = try DatabaseConnection(directory.file("holdfast.db"))
        try database.execute("UPDATE last_uses SET day = day - 30")
        try evaluate(servers[1], "keys=used")
        func stale(_ days: Int) throws -> [String?]? {
            try client.request("GET", "/v1/flags?stale=\(days)d")["flags"].array?.map { $0["key"].string }
        }
        #expect(try stale(30) == ["old"])
        #expect(try stale(31) == [])
        let command = try Command(
            "stale", "--unused", "30d", environment: ["HOLDFAST_URL": "http://127.0.0.1:\(servers[1].port)"])
        #expect(command.end == .exit(2) && command.output == "old: nobody has used it for 30d", "\(command)")
    }

    @Test func `Edits that clients send to one server at once are all made`() throws {
        let clients = try (0..<24).map { _ in try servers[0].client() }
        for (number, client) in clients.enumerated() {
            try client.send(HTTPClient.head("PUT", "/v1/experiments/e\(number)", #"{"variations":["a","b"]}"#))
        }
        for client in clients { #expect(try client.receive().status == 201) }
        let list = try clients[0].request("GET", "/v1/experiments")["experiments"].array
        #expect(list?.count == clients.count)
    }

    @Test func `Flags that both change at once are all kept, and both decide alike`() throws {
        let (count, done) = (12, DispatchGroup())
        for (number, server) in servers.enumerated() {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try server.client()
                    // Who loses too many races against the other's edits is told to try again.
                    func put(_ path: String, _ body: String) throws {
                        var response = try client.request("PUT", path, body)
                        while response.status == 409 { response = try client.request("PUT", path, body) }
                        #expect(response.status == 201, "\(response.text)")
                    }
                    for flag in 0..<count {
                        let rules = #"[{"experiment":{"weights":{"off":1,"on":1}}}]"#
                        try put("/v1/flags/f\(number)n\(flag)", #"{"type":"boolean","rules":\#(rules)}"#)
                        let traffic = #"{"variations":["a"],"group":"page","traffic":4}"#
                        try put("/v1/experiments/e\(number)n\(flag)", traffic)
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        done.wait()
        // A change reads the newest datafile first.
        for server in servers {
            #expect(try server.request("PUT", "/v1/flags/f0n0", "{}").status == 200)
            #expect(try server.request("GET", "/v1/flags")["flags"].array?.count == 4 * count)
            let tooMuch = #"{"variations":["a"],"group":"page","traffic":5}"#
            #expect(try server.request("PUT", "/v1/experiments/more", tooMuch).status == 422)
        }
        for user in 0..<40 {
            let body = #"{"user_id":"user\#(user)"}"#
            let responses = try servers.map { try $0.request("POST", "/v1/evaluations", body) }
            let keys = responses.map { $0["evaluations"].array?.map { $0["variation_key"] } }
            #expect(keys[0] == keys[1] && keys[0]?.count == 4 * count, "\(responses[0].text)")
        }
    }

    @Test func `What one erases or overrides the other answers at once`() throws {
        let (one, other) = (try servers[0].client(), try servers[1].client())
        for round in 0..<50 {
            _ = try one.request("POST", "/ups/save", profile("ada", ["11": "1"]))
            #expect(try other.request("GET", "/v1/profiles/ada").status == 200)
            _ = try one.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"o\#(round)"}"#)
            #expect(try other.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "o\(round)"]))
            #expect(
                try other.request("POST", "/ups/save", profile("ada", ["11": "2"])).text
                    == profile("ada", ["11": "o\(round)"]))
            #expect(try one.request("DELETE", "/v1/profiles/ada").status == 200)
            #expect(try other.request("GET", "/v1/profiles/ada").status == 404)
        }
    }

    @Test func `Concurrent saves of different experiments of one user by both are all kept`() throws {
        let count = 50
        let (servers, done) = (servers, DispatchGroup())
        for worker in 0..<4 {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try servers[worker % 2].client()
                    for number in 0..<count {
                        let body = profile("ada", ["w\(worker)n\(number)": "v\(number)"])
                        #expect(try client.request("POST", "/ups/save", body).status == 200)
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        done.wait()
        for server in servers {
            let map = try server.request("GET", "/v1/profiles/ada")["experiment_bucket_map"]
            #expect(map.object?.count == 4 * count)
            for worker in 0..<4 {
                for number in 0..<count {
                    #expect(map["w\(worker)n\(number)"]["variation_id"] == .string("v\(number)"))
                }
            }
        }
    }

    @Test func `What another program writes to the file both answer at once`() throws {
        let clients = [try servers[0].client(), try servers[1].client()]
        #expect(try clients[0].request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let program = try DatabaseConnection(directory.file("holdfast.db"))
        for round in 0..<20 {
            for client in clients { #expect(try client.request("GET", "/v1/profiles/eve").status == 404) }
            try program.execute(
                "INSERT INTO profiles SELECT 'eve', record, expires_at FROM profiles WHERE user_id = 'ada'")
            // Its row is in the shadow of a commit of the server, or of nothing.
            if round % 2 == 0 { _ = try clients[0].request("POST", "/ups/save", profile("bob", ["11": "v\(round)"])) }
            for client in clients {
                #expect(try client.request("GET", "/v1/profiles/eve").text == profile("eve", ["11": "1"]))
            }
            try program.execute("DELETE FROM profiles WHERE user_id = 'eve'")
        }
    }

    @Test func `One goes on when the other is killed`() throws {
        #expect(try servers[0].request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        servers[0].kill()
        #expect(try servers[1].request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        #expect(try servers[1].request("POST", "/ups/save", profile("ada", ["11": "2"])).status == 200)
        #expect(try servers[1].request("GET", "/readyz").status == 200)
    }

    @Test func `Of many who change what they have read at once, on two processes, exactly one does`() throws {
        let client = try servers[0].client()
        func map(_ variation: String) -> String { #"{"experiment_bucket_map":{"7":{"variation_id":"\#(variation)"}}}"# }
        let target = "/v1/profiles/ada"
        #expect(try client.request("PUT", target, map("0")).status == 201)
        for round in 1...20 {
            let tag = try #require(try client.request("GET", target).field("etag"))
            let clients = try (0..<6).map { try servers[$0 % 2].client() }
            let changes = clients.indices.map { map("\(round)x\($0)") }
            for (client, change) in zip(clients, changes) {
                try client.send(HTTPClient.head("PUT", target, change, fields: ["If-Match: \(tag)"]))
            }
            let statuses = try clients.map { try $0.receive().status }
            #expect(statuses.count { $0 == 200 } == 1, "\(statuses)")
            #expect(statuses.count { $0 == 412 } == 5, "\(statuses)")
        }
    }

    @Test func `Of many who decide about proposals at once, on two processes, exactly one does`() throws {
        let tokens = try directory.write(
            "admin ann ann-secret-0123456789\nadmin bob bob-secret-0123456789\n", to: "people.tokens")
        let options = ["--tokens-file", tokens, "--approvals", "2"]
        let database = directory.file("proposals.db")
        let servers = try (0..<2).map { _ in try ServerProcess(database: database, options) }
        let ann = try servers[0].client()
        func ask(_ method: String, _ target: String, _ body: String? = nil) throws -> TestResponse {
            try ann.request(method, target, body, token: "ann-secret-0123456789")
        }
        #expect(try ask("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#).status == 201)
        let clients = try (0..<6).map { try servers[$0 % 2].client() }
        for round in 1...10 {
            // Two proposals for the same definitions: whichever is approved voids the other.
            let traffic = [round, round + 50]
            let ids = try traffic.map {
                try #require(
                    try ask("PUT", "/v1/experiments/checkout", #"{"traffic":\#($0)}"#)["proposal"]["id"].string)
            }
            for (number, client) in clients.enumerated() {
                let action = number < 4 ? "approve" : "reject"
                try client.send(
                    HTTPClient.head(
                        "POST", "/v1/proposals/\(ids[number % 2])/\(action)", nil, token: "bob-secret-0123456789"))
            }
            let statuses = try clients.map { try $0.receive().status }
            let approvals = statuses.prefix(4).count { $0 == 200 }
            #expect(approvals <= 1, "\(statuses)")
            #expect(statuses.allSatisfy { [200, 409].contains($0) }, "\(statuses)")
            let decided = try ids.map { try ask("GET", "/v1/proposals/\($0)")["status"].string }
            #expect(decided.count { $0 == "approved" } == approvals, "\(decided) \(statuses)")
            guard let made = decided.firstIndex(of: "approved") else { continue }
            // The other process may have approved it, whose definitions this one reads a moment later.
            let isMade = try servers[0].awaits {
                try $0.request("GET", "/v1/experiments/checkout", token: "ann-secret-0123456789")["traffic"]
                    == .integer(Int64(traffic[made]))
            }
            #expect(isMade, "\(traffic) \(decided)")
        }
    }

    // MARK: A process with an older datafile

    @Test func `A process with an older datafile moves nobody`() throws {
        let clients = [try servers[0].client(), try servers[1].client()]
        try makeCheckout(known: clients[1])
        for round in 0..<20 {
            // Until the other process looks for changes, it knows nothing of this variation.
            let variation = "new\(round)"
            try giveAll(to: variation, clients[0])
            let user = "user\(round)"
            for client in [clients[0], clients[1], clients[0], clients[1]] {
                #expect(try assign(user, client)["variation_key"].string == variation)
            }
        }
    }

    @Test func `A process with an older datafile enrolls nobody, and does not say so without enrolling either`() throws
    {
        let clients = [try servers[0].client(), try servers[1].client()]
        try makeCheckout(known: clients[1])
        for round in 0..<20 {
            let variation = "new\(round)"
            try giveAll(to: variation, clients[0])
            #expect(try assign("first\(round)", clients[1])["variation_key"].string == variation)
            #expect(try assign("second\(round)", clients[0])["variation_key"].string == variation)
            let asked = try clients[1].request("GET", "/v1/assign?user_id=second\(round)&experiment=checkout")
            #expect(asked["variation_key"].string == variation)
        }
    }

    @Test func `Every way of deciding uses the newest datafile`() throws {
        let clients = [try servers[0].client(), try servers[1].client()]
        try makeCheckout(known: clients[1])
        let agent = ["X-Optimizely-SDK-Key: default", "Content-Type: application/json"]
        for round in 0..<10 {
            let variation = "new\(round)"
            try giveAll(to: variation, clients[0])
            #expect(try assign("user\(round)", clients[0])["variation_key"].string == variation)
            let activated = try clients[1].request(
                "POST", "/v1/activate?experimentKey=checkout", "{\"userId\":\"user\(round)\"}", fields: agent)
            #expect(activated.json.array?.first?["variationKey"].string == variation, "\(activated.text)")
        }
    }

    @Test func `A process that cannot use the active datafile enrolls nobody, and serves who has a variation`() throws {
        let client = try servers[0].client()
        try makeCheckout(known: client)
        let given = try assign("ada", client)["variation_id"]
        let database = try DatabaseConnection(directory.file("holdfast.db"))
        try database.execute(
            """
            BEGIN IMMEDIATE;
            INSERT INTO datafiles (sdk_key, revision, content, stored_at, author)
            VALUES ('default', '99', CAST('{"of":"a later release"}' AS BLOB), 0, 'later');
            UPDATE counters SET project_changes = project_changes + 1;
            COMMIT
            """)
        #expect(try assign("ada", client)["variation_id"] == given)
        let refused = try assign("bob", client)
        #expect(refused.status == 503)
        #expect(refused["detail"].string?.contains("datafile") == true)
        #expect(try client.request("GET", "/v1/profiles/bob").status == 404)
    }

    @Test func `Neither of two projects with one experiment id takes the other's variations for gone`() throws {
        let client = try servers[0].client()
        func datafile(_ key: String, _ variation: String) -> String {
            """
            {"version":"4","accountId":"1","projectId":"1","revision":"1","sdkKey":"\(key)","groups":[],"events":[],
            "attributes":[],"audiences":[],"typedAudiences":[],"featureFlags":[],"rollouts":[],"holdouts":[],
            "experiments":[{"id":"7001","key":"checkout","layerId":"1","status":"Running","audienceIds":[],
            "forcedVariations":{},"variations":[{"id":"\(variation)","key":"v\(variation)"}],
            "trafficAllocation":[{"entityId":"\(variation)","endOfRange":10000}]}]}
            """
        }
        for (key, variation) in [("one", "11"), ("two", "22")] {
            #expect(try client.request("PUT", "/v1/projects/\(key)").status == 201)
            let response = try client.request(
                "PUT", "/v1/datafile?share=allow", datafile(key, variation), fields: ["X-Optimizely-SDK-Key: \(key)"])
            #expect(response.status == 200 || response.status == 201, "\(response.text)")
        }
        func ask(_ key: String) throws -> TestResponse {
            try client.request(
                "POST", "/v1/assign", "{\"user_id\":\"ada\",\"experiment\":\"checkout\",\"sdk_key\":\"\(key)\"}")
        }
        #expect(try ask("one")["variation_id"] == "11")
        #expect(try ask("two")["variation_id"] == "22")
        #expect(try ask("one")["source"] == "stored")
        #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["7001": "11"]))
    }

    private func makeCheckout(known client: HTTPClient) throws {
        let definition = #"{"id":"7001","variations":["control"]}"#
        #expect(try servers[0].request("PUT", "/v1/experiments/checkout", definition).status == 201)
        let deadline = ContinuousClock.now + .seconds(60)
        while try client.request("GET", "/v1/experiments/checkout").status != 200 {
            guard .now < deadline else { throw TestFailure("another server's experiment is not seen") }
        }
    }

    /// Adds a variation that every new user gets.
    private func giveAll(to variation: String, _ client: HTTPClient) throws {
        let definition = "{\"variations\":[{\"key\":\"control\",\"weight\":0},{\"key\":\"\(variation)\",\"weight\":1}]}"
        #expect(try client.request("PUT", "/v1/experiments/checkout?moves=allow", definition).status == 200)
    }

    private func assign(_ user: String, _ client: HTTPClient) throws -> TestResponse {
        try client.request("POST", "/v1/assign", "{\"user_id\":\"\(user)\",\"experiment\":\"checkout\"}")
    }
}
