import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

#if PostgreSQL
    import PostgreSQLTestSupport
#endif

/// The fuzzer over all routes that `/openapi.json` describes, briefly. The article Testing tells how to run it for hours.
@Suite struct OpenAPIFuzzTests {
    /// Texts that PostgreSQL cannot store, in all places of a request.
    private func sendNUL(to server: ServerProcess) throws {
        let client = try server.client()
        for (method, target, body) in [
            ("GET", "/v1/profiles/a%00b", nil), ("GET", "/v1/audit?author=a%00b", nil),
            ("GET", "/v1/experiments/a%00b", nil), ("GET", "/v1/experiments/a%00b/results", nil),
            ("GET", "/v1/flags/a%00b", nil), ("GET", "/datafiles/a%00b.json", nil),
            ("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"1","reason":"a\u0000b"}"#),
            ("PUT", "/v1/experiments/x", #"{"variations":["a","b"],"description":"a\u0000b"}"#),
        ] {
            let response = try client.request(method, target, body)
            #expect(response.status == 400, "\(method) \(target): \(response.text)")
            #expect(response.text.contains("NUL"), "\(method) \(target): \(response.text)")
            #expect(try client.request("GET", "/readyz").status == 200)
        }
        let escaped = #"{"variations":["a","b"],"description":"a\\u0000b"}"#
        #expect(try client.request("PUT", "/v1/experiments/y", escaped).status < 300)
    }

    private func fuzz(_ server: ServerProcess) throws {
        try sendNUL(to: server)

        let script =
            URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().path
            + "/Python/openapi_fuzz.py"
        let python = try #require(Executable.find("python3"))
        let run = try ChildProcess(python, [script, "\(server.port)", "--seed", "7", "--requests", "2500"])
        #expect(run.wait() == .exit(0), "\(run.output.text.suffix(8_000)) \(run.errors.text.suffix(2_000))")
        #expect(try server.request("GET", "/readyz").status == 200)
    }

    @Test(.enabled(if: Executable.find("python3") != nil, "there is no Python here"))
    func `No input to any route makes a server with SQLite fail`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        try fuzz(server)
        server.stop()
    }

    #if PostgreSQL
        @Test(.enabled(if: Executable.find("python3") != nil, "there is no Python here"))
        func `No input to any route makes a server with PostgreSQL fail`() throws {
            let database = try PostgreSQLServer(["fsync=off"])
            let server = try ServerProcess(database: database.url("postgres"))
            try fuzz(server)
            server.stop()
        }
    #endif
}
