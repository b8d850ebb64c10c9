import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// Events that are to be sent again, beside those that need not be.
@Suite struct PostponementTests {
    private func experiments(_ call: StubServer.Call) throws -> [String] {
        try JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8)).compactMap {
            $0["experiment"]?.stringValue
        }
    }

    private func report(_ experiment: String, _ users: Range<Int>, _ client: HoldfastClient) {
        for user in users { client.reportExposure(experiment: experiment, variationID: "1", userID: "user\(user)") }
    }

    /// Takes all but the exposures of an experiment that it does not know yet.
    private static func server(unknown: String = "gone") -> StubServer {
        StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/exposures" else { return Client.usual(call) }
            let events = (try? JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8))) ?? []
            let results = events.enumerated().map { index, event in
                event["experiment"]?.stringValue == unknown
                    ? #"{"index":\#(index),"status":"refused","reason":"there is no such experiment","retriable":true}"#
                    : #"{"index":\#(index),"status":"stored"}"#
            }
            return .json(#"{"results":[\#(results.joined(separator: ","))]}"#)
        }
    }

    @Test func `Events of an experiment that is gone keep no later event from being sent`() async throws {
        let test = try Client(server: Self.server()) { $0.batchSize = 10 }
        report("gone", 0..<25, test.client)
        report("here", 0..<50, test.client)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 25)
        #expect(try test.server.calls("/v1/exposures").flatMap(experiments).count { $0 == "here" } == 50)
        // The experiment is there again.
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.client.waitingEvents == 0)
    }

    @Test(.timeLimit(.minutes(5))) func `A postponed event is sent again by itself, after a longer time each time`()
        async throws
    {
        let test = try Client(server: Self.server())
        report("gone", 0..<1, test.client)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        for attempt in 2...5 {
            let calls = test.server.calls("/v1/exposures").count
            var waited = 0.0
            while try test.server.calls("/v1/exposures").count(where: { try experiments($0).contains("gone") })
                < attempt
            {
                test.clock.advance(by: .seconds(0.1))
                waited += 0.1
                for _ in 0..<20 { await Task.yield() }
            }
            // The time is between half of it and all of it.
            #expect(waited > Double(1 << (attempt - 2)) / 2 - 0.2)
            #expect(test.server.calls("/v1/exposures").count == calls + 1)
        }
        // Others are sent when their own time has come.
        report("here", 0..<1, test.client)
        var others = 0
        while others == 0 {
            test.clock.advance(by: .seconds(1))
            for _ in 0..<20 { await Task.yield() }
            others = try test.server.calls("/v1/exposures").flatMap(experiments).count { $0 == "here" }
        }
        while test.client.waitingEvents > 1 { await Task.yield() }
        #expect(test.client.waitingEvents == 1)
    }

    @Test(.timeLimit(.minutes(5))) func `A kind that the server does not want now delays no other`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path == "/v1/profiles" ? .status(503, ["retry-after": "3600"]) : Client.usual(call)
            })
        UserProfileService(client: test.client).save(
            userProfile: UserProfile(userID: "ada", experimentBucketMap: ["1": "a"]))
        await #expect(throws: HoldfastError.unavailable(status: 503, retryAfter: .seconds(3_600))) {
            try await test.client.flush()
        }
        test.client.track(goalID: "bought", userID: "ada")
        while test.server.calls("/v1/events").isEmpty {
            test.clock.advance(by: .seconds(1))
            for _ in 0..<20 { await Task.yield() }
        }
        #expect(test.server.calls("/v1/profiles").count == 1)
    }

    @Test(.timeLimit(.minutes(5))) func `A request without response delays no other kind`() async throws {
        let gate = Gate()
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                if call.path == "/v1/profiles" { await gate.passed() }
                return Client.usual(call)
            }
        ) { $0.batchSize = 1 }
        UserProfileService(client: test.client).save(
            userProfile: UserProfile(userID: "ada", experimentBucketMap: ["1": "a"]))
        await test.server.untilCalled("/v1/profiles")
        test.client.track(goalID: "bought", userID: "ada")
        await test.server.untilCalled("/v1/events")
        gate.open()
    }

    @Test func `A full queue drops the oldest postponed event first, and tells`() async throws {
        let test = try Client(server: Self.server()) { $0.queueSize = 3 }
        report("gone", 0..<2, test.client)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        var notices = test.client.deliveries().makeAsyncIterator()
        report("here", 2..<3, test.client)
        #expect(test.client.reportExposure(experiment: "here", variationID: "1", userID: "user3"))
        guard let notice = await notices.next(), case .exposure(let exposure) = notice.event,
            case .dropped = notice.outcome
        else {
            Issue.record("not told")
            return
        }
        #expect(exposure.userID == "user0")
        #expect(test.client.waitingEvents == 3)
        #expect(test.client.reportExposure(experiment: "here", variationID: "1", userID: "user4"))
        // What was never tried is not dropped for what is new.
        #expect(!test.client.reportExposure(experiment: "here", variationID: "1", userID: "user5"))
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.server.calls("/v1/exposures").last?.body.contains("user0") == false)
    }

    @Test func `What was dropped to make room may be reported again`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.path.hasPrefix("/v1/profiles") ? .status(400, ["content-type": "text/html"]) : Client.usual(call)
            }
        ) { $0.queueSize = 2 }
        let (attributes, profiles) = (AttributeService(client: test.client), UserProfileService(client: test.client))
        try attributes.update(attributes: ["age": 1], userID: "ada")
        profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["1": "a"]))
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        var notices = test.client.deliveries().makeAsyncIterator()
        for _ in 0..<2 { test.client.track(goalID: "bought", userID: "ada") }
        for _ in 0..<2 {
            guard case .dropped = await notices.next()?.outcome else {
                Issue.record("not told")
                return
            }
        }
        #expect(profiles.lookup(userID: "ada") == nil)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        try attributes.update(attributes: ["age": 1], userID: "ada")
        profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["1": "a"]))
        #expect(test.client.waitingEvents == 2)
    }

    @Test func `The server's reason for a refusal is reported, in either form`() async throws {
        let problem =
            #"{"type":"about:blank","title":"Not Found","status":404,"detail":"gone","pointer":"/1/experiment"}"#
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(
                    #"""
                    {"results":[{"index":0,"status":"refused","retriable":false,"problem":\#(problem)},
                     {"index":1,"status":"refused","retriable":true,"problem":\#(problem)},
                     {"index":2,"status":"refused","reason":"gone","retriable":false}]}
                    """#)
            })
        var notices = test.client.deliveries().makeAsyncIterator()
        report("gone", 0..<3, test.client)
        await #expect(throws: HoldfastError.refused(status: 404, detail: "gone", pointer: "/1/experiment")) {
            try await test.client.flush()
        }
        var reasons: [String] = []
        for _ in 0..<3 {
            switch await notices.next()?.outcome {
            case .refused(let reason): reasons.append(reason)
            case .postponed(.refused(let status, let detail, _)): reasons.append("\(status) \(detail)")
            default: reasons.append("?")
            }
        }
        #expect(reasons == ["gone (/1/experiment)", "404 gone", "gone"])
        #expect(test.client.waitingEvents == 1)
    }
}
