#if PostgreSQL
    import APITestSupport
    import Foundation
    import JSON
    import PostgreSQLTestSupport
    import Testing

    /// An edge whose upstream is on PostgreSQL.
    @Suite struct EdgePostgreSQLTests {
        private let database: TestDatabase
        private let fixture: EdgeFixture

        init() throws {
            let kind = TestDatabase.Kind.direct
            database = try TestDatabase(kind, on: PostgreSQLServer(["fsync=off"], isCitus: kind == .citus))
            fixture = try EdgeFixture(database: database.url)
        }

        private func goals(of user: String) throws -> Int {
            let events = try fixture.upstream.request("GET", "/v1/profiles/\(user)/events").text
            return events.components(separatedBy: #""goal":"bought""#).count - 1
        }

        private func buy(_ user: String, at edge: ServerProcess) throws {
            #expect(try edge.request("POST", "/v1/events", #"{"user_id":"\#(user)","goal":"bought"}"#).status == 200)
        }

        @Test func `An edge copies, enrolls, follows and sends each event once while server and database are killed`()
            throws
        {
            let users = (0..<30).map { "known\($0)" }
            let given = try users.map { try fixture.upstream.assign($0)["variation_id"].string }
            let edge = try fixture.edge()
            #expect(try users.map { try edge.assign($0)["variation_id"].string } == given)
            #expect(try edge.metric("holdfast_edge_changes_total") == 0)
            #expect(try edge.assign("new")["variation_id"].string == (try fixture.upstream.stored("new")))

            let forced = given[0] == "70011" ? "70012" : "70011"
            let override = #"{"variation_id":"\#(forced)"}"#
            let target = "/v1/profiles/known0/experiments/checkout"
            #expect(try fixture.upstream.request("PUT", target, override).status == 200)
            #expect(try edge.awaits { try $0.stored("known0") == forced })
            #expect(try fixture.upstream.request("DELETE", "/v1/profiles/known1").status == 200)
            #expect(try edge.awaits { try $0.stored("known1") == nil })

            fixture.upstream.kill()
            try EdgeFixture.awaitAway(edge)
            for user in users.dropFirst(2) { try buy(user, at: edge) }
            let hashed = try edge.assign("later")["variation_id"].string ?? ""
            let exposure = #"{"user_id":"later","experiment":"checkout","variation_id":"\#(hashed)"}"#
            #expect(try edge.request("POST", "/v1/exposures", exposure).status == 200)
            #expect(try edge.assign("known2")["variation_id"].string == given[2])
            try fixture.restartUpstream()
            #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
            #expect(try edge.awaits { try $0.stored("later") == hashed })

            for user in users.dropFirst(2) { try buy(user, at: edge) }
            try database.server.crash()
            for user in users.dropFirst(2) { try buy(user, at: edge) }
            try EdgeFixture.awaitUp(edge)
            #expect(try edge.awaitMetric("holdfast_edge_outbox_events") { $0 == 0 } == 0)
            for user in users.dropFirst(2) { #expect(try goals(of: user) == 3, "\(user)") }
            #expect(try edge.metric("holdfast_edge_refused_events_total") == 0)
            #expect(try edge.awaits { try $0.assign("last").status == 200 && $0.stored("last") != nil })
            #expect(try edge.stored("last") == (try fixture.upstream.stored("last")))
            edge.stop()
        }
    }
#endif
