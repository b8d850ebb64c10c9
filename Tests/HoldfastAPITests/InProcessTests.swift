import Foundation
import HTTPServer
import HoldfastAPI
import HoldfastCore
import Logging
import Storage
import StorageSQLite
import TestSupport
import Testing

/// The whole API without sockets.
@Suite final class InProcessTests {
    private let directory = NSTemporaryDirectory() + "/holdfast-" + UUID().uuidString
    private let store: SQLiteStore
    private let server: InProcessServer

    init() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let store = try SQLiteStore(SQLiteConfiguration(path: directory + "/h.db"))
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let services = Services(
            profiles: store, attributes: store, projects: try ProjectCatalog(store: store, logger: logger),
            events: EventQueue(store: store), audit: store, access: AccessControl(),
            build: BuildInfo(version: "0", startedAt: 0), logger: logger)
        self.store = store
        server = try InProcessServer { try HoldfastApplication(services: services, loop: $0) }
    }

    deinit {
        server.stop()
        store.close()
        try? FileManager.default.removeItem(atPath: directory)
    }

    private func send(
        _ method: String, _ target: String, _ body: String = ""
    ) throws -> (status: UInt16, type: String, body: String) {
        let response = try server.response(to: LocalRequest(method, target, body: Array(body.utf8)))
        #expect(response.isComplete)
        return (
            response.status.code, response.contentType?.description ?? "",
            String(decoding: response.body, as: UTF8.self)
        )
    }

    @Test func aSavedProfileIsLookedUpImportedAndExported() throws {
        let profile = #"{"user_id":"u1","experiment_bucket_map":{"e1":{"variation_id":"v1"}}}"#
        #expect(try send("POST", "/ups/save", profile).status == 200)
        #expect(try send("GET", "/ups/lookup?user_id=u1").body.contains(#""variation_id":"v1""#))
        // A streamed request body.
        let imported = try send("POST", "/v1/profiles", profile.replacingOccurrences(of: "u1", with: "u2") + "\n")
        #expect(imported.body.contains(#""imported":1"#))
        // A streamed response.
        let exported = try send("GET", "/v1/profiles")
        #expect(exported.body.split(separator: "\n").count == 2)
    }

    @Test(arguments: [("GET", "/nowhere", 404), ("DELETE", "/ups/save", 405)])
    func aRequestWithoutARouteGetsAProblem(_ method: String, path: String, status: UInt16) throws {
        let response = try send(method, path)
        #expect(response.status == status)
        #expect(response.type == "application/problem+json")
    }
}
