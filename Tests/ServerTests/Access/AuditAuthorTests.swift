import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Whom the audit log names for changes that no authenticated request made.
@Suite struct AuditAuthorTests {
    private static let tokens = """
        admin on-call on-call-secret-0123456789
        admin data-team data-team-secret-0123456789
        write app write-secret-0123456789

        """

    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test func `Tokens that are read anew are told by name and scope`() throws {
        let file = try directory.write(Self.tokens, to: "tokens")
        let server = try ServerProcess(database: directory.file("holdfast.db"), ["--tokens-file", file])
        _ = try directory.write(Self.tokens + "read dashboard read-secret-0123456789\n", to: "tokens")
        server.child.send(SIGHUP)
        #expect(server.child.errors.first { $0.contains("read the token file again") } != nil)
        let entry = try #require(try untilThere(server).first)
        #expect(entry["action"] == "tokens.reload")
        #expect(entry["author"] == "signal SIGHUP")
        #expect(entry["before"].array?.count == 3)
        #expect(entry["after"].array?.last == ["name": "dashboard", "scope": "read"])
    }

    private func untilThere(_ server: ServerProcess) throws -> [JSONValue] {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let found =
                try server.request("GET", "/v1/audit", token: "on-call-secret-0123456789")["entries"].array ?? []
            if !found.isEmpty || .now > deadline { return found }
        }
    }

    @Test func `Without tokens the author is anonymous, and of a datafile at the start the user of the process`() throws
    {
        let database = directory.file("open.db")
        let first = try ServerProcess(database: database)
        #expect(try first.request("PUT", "/v1/experiments/checkout", #"{"variations":["a"]}"#).status == 201)
        let datafile = try first.client().request("GET", "/v1/datafile", fields: ["X-Optimizely-SDK-Key: default"]).text
        first.stop()
        let path = try directory.write(
            datafile.replacing("\"revision\":\"1\"", with: "\"revision\":\"9\""), to: "default.json")
        let second = try ServerProcess(database: database, ["--datafile", path])
        let authors = try second.request("GET", "/v1/audit")["entries"].array?.map { $0["author"].string ?? "" }
        #expect(authors?.last == "anonymous")
        #expect(authors?.first == "user \(NSUserName())")
        second.stop()
    }
}
