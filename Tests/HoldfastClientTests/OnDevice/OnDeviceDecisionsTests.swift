import Foundation
import HoldfastOnDevice
import ProcessTestSupport
import Testing

@testable import HoldfastClient

/// Decisions on the device, compared with those of the built server.
@Suite(.timeLimit(.minutes(5))) struct OnDeviceDecisionsTests {
    /// Sends requests on, and remembers their paths and bodies.
    private final class Recorder: HoldfastTransport {
        private let base = URLSessionTransport()
        let sent = Log<(path: String, body: String)>()

        func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
            sent.add((request.url.path, String(decoding: request.body ?? Data(), as: UTF8.self)))
            return try await base.open(request)
        }

        func close() { base.close() }
    }

    private static let definitions = [
        (
            "flags/banner",
            #"{"type":"string","variations":[{"key":"short","value":"Hi"},{"key":"long","value":"Good day"}],"#
                + #""rules":[{"audience":{"type":"custom_attribute","name":"country","value":"fr"},"variation":"long"},"#
                + #"{"key":"banner_test","experiment":{"id":"8001","weights":{"short":1,"long":1},"traffic":50}}],"otherwise":"short"}"#
        ),
        (
            "experiments/layout",
            #"{"variations":[{"key":"control","weight":1},{"key":"grid","weight":3},{"key":"list","weight":1}],"traffic":80}"#
        ),
    ]

    /// - Parameter definitions: whether it also has a flag and an experiment that were defined over the API.
    private func server(definitions: Bool = true) async throws -> RealServer {
        let server = try await RealServer()
        try await server.putDatafile(revision: 1)
        for (path, body) in definitions ? Self.definitions : [] { try await server.request("PUT", "/v1/\(path)", body) }
        return server
    }

    private func client(
        _ server: RealServer, _ directory: TemporaryDirectory, _ transport: Recorder = Recorder()
    ) throws -> HoldfastClient {
        var configuration = HoldfastConfiguration(endpoint: try server.endpoint, directory: directory.url)
        configuration.sdkKey = "shop"
        configuration.listensToChanges = false
        return try HoldfastClient(
            configuration: configuration,
            transport: try OnDeviceDecisions(directory: directory.url, over: transport))
    }

    @Test func `A device decides what the server decides, and sends no attributes`() async throws {
        let server = try await server()
        let recorder = Recorder()
        let client = try client(server, TemporaryDirectory(), recorder)
        var seen: Set<String> = []
        for number in 0..<150 {
            let country = ["de", "fr", "us"][number % 3]
            let user = HoldfastUser(id: "user\(number)", attributes: ["country": .string(country)])
            #expect(try await client.initialize(user: user, timeout: .seconds(60)) == .server)
            let response = try await server.request(
                "POST", "/v1/evaluations",
                #"{"user_id":"\#(user.id)","sdk_key":"shop","attributes":{"country":"\#(country)"}}"#)
            let expected = try JSONDecoder().decode(Evaluations.Content.self, from: Data(response.utf8))
            let details = expected.evaluations.map { EvaluationDetails($0, of: expected) }
            #expect(client.allEvaluationDetails == details)
            seen.formUnion(details.map { "\($0.flagKey) \($0.variationKey ?? "-") \($0.reason)" })
        }
        #expect(seen.count > 5, "\(seen)")
        client.destroy()
        let paths = Set(recorder.sent.all.map(\.path))
        #expect(paths.isDisjoint(with: ["/v1/evaluations", "/v1/assign"]), "\(paths)")
        #expect(!recorder.sent.all.contains { $0.body.contains("country") })
    }

    @Test func `Without the network a device decides for anybody, keeps what it decided, and the server learns of it`()
        async throws
    {
        let server = try await server(definitions: false)
        let directory = try TemporaryDirectory()
        let first = try client(server, directory)
        let germany: [String: UserAttributeValue] = ["country": "de"]
        try await first.initializeAnonymously(attributes: germany, timeout: .seconds(60))
        #expect(["control", "new"].contains(first.stringVariation(flagKey: "checkout", defaultValue: "")))
        server.kill()
        // Other users, with other attributes: no cache has these.
        try await first.logout(attributes: ["country": "us"], timeout: .seconds(60))
        #expect(first.fetchError == nil && first.evaluationDetails(flagKey: "checkout")?.variationKey == nil)
        try await first.initialize(user: HoldfastUser(id: "ada", attributes: germany), timeout: .seconds(60))
        let adas = first.stringVariation(flagKey: "checkout", defaultValue: "")
        #expect(["control", "new"].contains(adas))
        first.destroy()

        // A restart without the network; then the server is there, with another split.
        let second = try client(server, directory)
        let ada = HoldfastUser(id: "ada", attributes: germany)
        #expect(try await second.initialize(user: ada, timeout: .seconds(60)) == .server)
        #expect(second.stringVariation(flagKey: "checkout", defaultValue: "") == adas)
        let again = try await RealServer(after: server)
        try await again.putDatafile(revision: 2, controlEnd: adas == "control" ? 0 : 10_000)
        try await second.fetchEvaluations()
        let details = try #require(second.evaluationDetails(flagKey: "checkout"))
        #expect(details.variationKey == adas && details.reason == .stored && details.flagVersion == 2)
        try await second.flush()
        let stored = try await again.request("GET", "/v1/profiles/ada/experiments/7001")
        #expect(stored.contains(adas == "control" ? "70011" : "70012"))
        second.destroy()
    }

    @Test func `A login takes over the anonymous user's variations, and split tests are decided here, too`()
        async throws
    {
        let server = try await server()
        var participants = 0
        for number in 0..<10 {
            let directory = try TemporaryDirectory()
            // Of its own: a client that is destroyed closes its transport.
            let recorder = Recorder()
            let client = try client(server, directory, recorder)
            let tests = SplitTestService(client: client, storage: InMemorySplitTestStorage(), timeLimit: .seconds(60))
            let handle = await tests.fetchSplitTest(LayoutTest.self)
            #expect(handle.error == nil && handle.source != .local)
            #expect(try await client.login(userID: "user\(number)", timeout: .seconds(60)) == .server)
            if handle.isParticipating {
                #expect(await tests.fetchSplitTest(LayoutTest.self).group == handle.group)
                #expect(client.stringVariation(flagKey: "layout", defaultValue: "") == handle.group.rawValue)
                #expect(client.evaluationDetails(flagKey: "layout")?.reason == .stored)
            }
            participants += handle.isParticipating ? 1 : 0
            client.destroy()
            #expect(!recorder.sent.all.contains { $0.path == "/v1/assign" })
        }
        #expect(participants > 0, "a fifth of the users takes no part, but not all ten")
    }

    @Test func `Whoever asks for an account after its login was sent gets the anonymous user's variation`() async throws
    {
        let server = try await server()
        let endpoint = try server.endpoint
        let device = try OnDeviceDecisions(directory: TemporaryDirectory().url)
        func post(_ path: String, _ body: String) async throws -> String {
            var request = TransportRequest(
                method: "POST", url: endpoint.appendingPathComponent(path), timeout: .seconds(60))
            request.body = Data(body.utf8)
            var content = Data()
            for try await piece in try await device.open(request).body { content += piece }
            return String(decoding: content, as: UTF8.self)
        }
        func group(_ userID: String) async throws -> String? {
            let body = #"{"user_id":"\#(userID)","experiment":"layout","sdk_key":"shop"}"#
            let assignment = try JSONDecoder().decode(
                ExperimentAssignment.self, from: Data(try await post("v1/assign", body).utf8))
            return assignment.variationKey
        }
        var taken: Set<String> = []
        for number in 0..<20 {
            let (anonymous, account) = ("anonymous-\(number)", "user\(number)")
            let before = try await group(anonymous)
            _ = try await post("v1/logins", #"[{"user_id":"\#(account)","anonymous_id":"\#(anonymous)"}]"#)
            let after = try await group(account)
            if let before { #expect(after == before) }
            taken.formUnion([before].compactMap(\.self))
        }
        #expect(taken.count > 1, "different anonymous users have different variations")
    }

    private enum LayoutTest: SplitTest {
        static let identifier = "layout"
        enum Group: String, CaseIterable, SplitTestGroup { case control, grid, list }
    }

    @Test func `An unknown project and a missing key are errors, and what is no datafile changes nothing`() async throws
    {
        let directory = try TemporaryDirectory()
        let server = StubServer { call throws(HoldfastError) in .status(404) }
        for (sdkKey, expected) in [
            ("shop", HoldfastError.unknownProject(detail: "no project has the SDK key 'shop'")),
            (nil, .invalidConfiguration("decisions on the device need HoldfastConfiguration.sdkKey")),
        ] {
            var configuration = HoldfastConfiguration(endpoint: Client.endpoint, directory: directory.url)
            configuration.sdkKey = sdkKey
            configuration.listensToChanges = false
            let client = try HoldfastClient(
                configuration: configuration,
                transport: try OnDeviceDecisions(directory: directory.url, over: server))
            #expect(
                try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60)) == .nothing(expected))
            client.destroy()
        }
        server.respond { _ throws(HoldfastError) in .json("<html>") }
        var configuration = HoldfastConfiguration(endpoint: Client.endpoint, directory: directory.url)
        configuration.sdkKey = "shop"
        configuration.listensToChanges = false
        let client = try HoldfastClient(
            configuration: configuration, transport: try OnDeviceDecisions(directory: directory.url, over: server))
        guard
            case .nothing(.invalidResponse) = try await client.initialize(
                user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        else {
            Issue.record("an answer that is no datafile was used")
            return
        }
        client.destroy()
    }

    @Test func `A device keeps a variation as long as the experiment says, or else the project, or else the app`()
        async throws
    {
        let server = try await server()
        let directory = try TemporaryDirectory()
        let clock = ManualClock()
        func start() throws -> HoldfastClient {
            var configuration = HoldfastConfiguration(endpoint: try server.endpoint, directory: directory.url)
            configuration.sdkKey = "shop"
            configuration.listensToChanges = false
            let decisions = try OnDeviceDecisions(
                directory: directory.url, assignmentTTL: .seconds(86_400), clock: clock)
            return try HoldfastClient(configuration: configuration, transport: decisions)
        }
        func layout(_ client: HoldfastClient) async throws -> EvaluationDetails {
            defer { client.destroy() }
            #expect(try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60)) == .server)
            return try #require(client.evaluationDetails(flagKey: "layout"))
        }
        /// Decides anew, and sees that the variation is kept for just so long, whatever the server would decide meanwhile.
        func expectKept(for duration: Duration, _ place: SourceLocation = #_sourceLocation) async throws {
            let kept = try await layout(start())
            #expect(kept.reason == .bucketed, sourceLocation: place)
            let key = try #require(kept.variationKey)
            let weights = ["control", "grid", "list"].map { #"{"key":"\#($0)","weight":\#($0 == key ? 0 : 1)}"# }
            try await server.request(
                "PUT", "/v1/experiments/layout?moves=allow", #"{"variations":[\#(weights.joined(separator: ","))]}"#)
            clock.advance(by: duration - .seconds(1))
            let late = try await layout(start())
            #expect(late.variationKey == key && late.reason == .stored, sourceLocation: place)
            clock.advance(by: .seconds(1))
            let after = try await layout(start())
            #expect(after.variationKey != key && after.reason == .bucketed, sourceLocation: place)
            // The next begins without a variation.
            clock.advance(by: .seconds(1_000 * 86_400))
        }
        try await server.request("PUT", "/v1/experiments/layout", #"{"traffic":100}"#)
        try await expectKept(for: .seconds(86_400))
        try await server.request("PUT", "/v1/projects/shop", #"{"assignment_ttl":"30d"}"#)
        try await expectKept(for: .seconds(30 * 86_400))
        try await server.request("PUT", "/v1/experiments/layout", #"{"assignment_ttl":"2h"}"#)
        try await expectKept(for: .seconds(7_200))
        try await server.request("PUT", "/v1/experiments/layout", #"{"assignment_ttl":"forever"}"#)
        let kept = try await layout(start())
        clock.advance(by: .seconds(10_000 * 86_400))
        #expect(try await layout(start()).variationKey == kept.variationKey)
    }

    @Test func `An assignment on the device expires as one on the server does`() throws {
        let directory = try TemporaryDirectory()
        let file = directory.url.appending(path: "profiles.json")
        let clock = ManualClock()
        func service() throws -> DeviceUserProfileService {
            try DeviceUserProfileService(file: file, assignmentTTL: .seconds(100), clock: clock)
        }
        let profile = UserProfile(userID: "ada", experimentBucketMap: ["7001": "a"])
        let first = try service()
        first.save(userProfile: profile)
        clock.advance(by: .seconds(60))
        // A save of the same renews it.
        try service().save(userProfile: profile)
        first.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7002": "b"]))
        clock.advance(by: .seconds(60))
        #expect(try service().lookup(userID: "ada")?.experimentBucketMap["7002"] == "b")
        clock.advance(by: .seconds(40))
        #expect(try service().lookup(userID: "ada") == nil)
        // A file of an earlier release has no times.
        try Data(#"[{"user_id":"bob","experiment_bucket_map":{"7001":{"variation_id":"a"}}}]"#.utf8).write(to: file)
        #expect(try service().lookup(userID: "bob") == UserProfile(userID: "bob", experimentBucketMap: ["7001": "a"]))
    }
}
