import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// A store that fails is an error, never "no profile"; and the server goes on by itself when the cause is gone.
@Suite struct FailingStoreTests {
    private let directory: TemporaryDirectory
    private let database: String

    init() throws {
        directory = try TemporaryDirectory()
        database = directory.file("holdfast.db")
    }

    @Test func `A database that another process holds for long fails writes and not lookups, until it is let go`()
        throws
    {
        let server = try ServerProcess(database: database, ["--lock-timeout", "100ms"])
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let other = try DatabaseConnection(database)
        for lock in ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"] {
            try other.execute(lock)
            try expectFailure(client, because: "locked")
            try other.execute("ROLLBACK")
            try expectRecovery(client)
        }
        for news in ["writes to the store fail", "locked", "writes to the store succeed again"] {
            #expect(server.child.errors.first { $0.contains(news) } != nil)
        }
    }

    @Test func `A long lock keeps no lookup from its answer`() throws {
        let server = try ServerProcess(database: database, ["--lock-timeout", "60s"])
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let other = try DatabaseConnection(database)
        try other.execute("BEGIN IMMEDIATE")
        let writer = try server.client()
        try writer.send(HTTPClient.head("POST", "/ups/save", profile("ada", ["11": "2"])))
        for _ in 0..<100 {
            #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        }
        // A lookup that waited for the lock would have been answered after the write failed.
        try other.execute("ROLLBACK")
        #expect(try writer.receive().status == 200)
        #expect(try client.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "2"]))
    }

    @Test(.enabled(if: SmallFileSystem.canBeMade, "a file system can only be mounted by the administrator"))
    func `A full disk fails writes, until there is space again`() throws {
        let disk = try SmallFileSystem(at: directory.path)
        let server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let ballast = try disk.fill()
        // The log may have room left in its last page; what fits is stored, what does not is refused.
        var last = profile("ada", ["11": "1"])
        for number in 0..<100 {
            let text = profile("ada", ["11": "v\(number)"])
            let response = try client.request("POST", "/ups/save", text)
            if response.status != 200 { break }
            last = text
        }
        #expect(try client.request("GET", "/v1/profiles/ada").text == last)
        try expectFailure(client, because: "full", stored: last)
        unlink(ballast)
        try expectRecovery(client)
        server.stop()
    }

    @Test(.enabled(if: SmallFileSystem.canBeMade, "a file system can only be mounted by the administrator"))
    func `A disk on which only small writes fit makes the server not ready, until a great one fits again`() throws {
        let disk = try SmallFileSystem(at: directory.path)
        let server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let ballast = try disk.fill(leaving: 64 << 10)
        let entries = (0..<900).map { "\"\($0)\":{\"variation_id\":\"\(String(repeating: "v", count: 200))\"}" }
        let big = "{\"user_id\":\"big\",\"experiment_bucket_map\":{\(entries.joined(separator: ","))}}"
        #expect(try client.request("GET", "/readyz").status == 200)
        #expect(try client.request("PUT", "/v1/profiles/big", big).status == 503)
        // Longer than one look at the store serves those who ask.
        let start = ContinuousClock.now
        repeat {
            #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "2"])).status == 200)
            let ready = try client.request("GET", "/readyz")
            #expect(ready.status == 503 && ready["detail"].string?.contains("full") == true, "\(ready.text)")
        } while ContinuousClock.now - start < .seconds(1.2)
        unlink(ballast)
        #expect(try untilAnswered(200, client, "/readyz").status == 200)
        #expect(try client.request("PUT", "/v1/profiles/big", big).status == 201)
        #expect(try client.request("GET", "/readyz").status == 200)
        server.stop()
        #expect(try DatabaseConnection(database).text("PRAGMA integrity_check") == "ok")
    }

    @Test(.enabled(if: Executable.find("prlimit") != nil, "there is no prlimit here"))
    func `A file that may not grow fails writes, until it may`() throws {
        let server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        try run("prlimit", "--pid", "\(server.child.identifier)", "--fsize=1024:unlimited")
        try expectFailure(client, because: "I/O error")
        try run("prlimit", "--pid", "\(server.child.identifier)", "--fsize=unlimited:unlimited")
        try expectRecovery(client)
        server.stop()
    }

    @Test(
        .enabled(if: ImmutableFile.canBeMade, "only the administrator can take away the right to write to an open file")
    )
    func `A file that is made read-only fails writes, until it can be written`() throws {
        let server = try ServerProcess(database: database)
        let client = try server.client()
        #expect(try client.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        do {
            try ImmutableFile.make(database, database + "-wal")
            defer { try? ImmutableFile.release(database, database + "-wal") }
            try expectFailure(client, because: "read-only")
        }
        try expectRecovery(client)
        server.stop()
    }

    /// Writes are refused as a failure of the store, and lookups still say what is stored.
    private func expectFailure(
        _ client: HTTPClient, because reason: String, stored: String = profile("ada", ["11": "1"]),
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let override = #"{"variation_id":"7"}"#
        for (method, target, body) in [
            ("POST", "/ups/save", profile("ada", ["11": "7"])),
            ("PATCH", "/v1/profiles/ada", profile("ada", ["11": "7"])),
            ("PUT", "/v1/profiles/new", profile("new", ["11": "7"])),
            ("PUT", "/v1/profiles/ada/experiments/11", override), ("DELETE", "/v1/profiles/ada", nil),
        ] {
            let response = try client.request(method, target, body)
            #expect(response.status == 503, "\(method) \(target): \(response.text)", sourceLocation: sourceLocation)
            #expect(response.field("content-type") == "application/problem+json", sourceLocation: sourceLocation)
            #expect(response.field("retry-after") != nil, sourceLocation: sourceLocation)
        }
        let imported = try client.request("POST", "/v1/profiles", profile("new", ["11": "7"]))
        #expect(imported.status == 503, sourceLocation: sourceLocation)
        let ready = try untilAnswered(503, client, "/readyz")
        #expect(ready.status == 503, sourceLocation: sourceLocation)
        #expect(ready["detail"].string?.contains(reason) == true, "\(ready.text)", sourceLocation: sourceLocation)
        #expect(try client.request("GET", "/livez").status == 200, sourceLocation: sourceLocation)
        #expect(try client.request("GET", "/v1/profiles/ada").text == stored, sourceLocation: sourceLocation)
        #expect(try client.request("GET", "/v1/profiles/new").status == 404, sourceLocation: sourceLocation)
    }

    /// Writes succeed again and the server is ready.
    private func expectRecovery(_ client: HTTPClient, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let text = profile("ada", ["11": "1"])
        let saved = try client.request("POST", "/ups/save", text)
        #expect(saved.text == text, sourceLocation: sourceLocation)
        #expect(try untilAnswered(200, client, "/readyz").status == 200, sourceLocation: sourceLocation)
        #expect(try client.request("GET", "/v1/profiles/new").status == 404, sourceLocation: sourceLocation)
    }

    /// Asks again until the response has this status: one look at the store serves those who ask for a short while.
    private func untilAnswered(_ status: Int, _ client: HTTPClient, _ target: String) throws -> TestResponse {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let response = try client.request("GET", target)
            if response.status == status || .now > deadline { return response }
        }
    }
}
