import Foundation
import HoldfastClient

/// Measures what an app's own threads pay for the client library, with a server that stops responding: prints
/// name and nanoseconds of one call, the best of several rounds. `Tests/Benchmarks/client` runs it.
@main struct ClientBenchmark {
    static func main() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "holdfast-client-" + UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: directory) }
        guard let endpoint = URL(string: "http://holdfast.test") else { return }
        var configuration = HoldfastConfiguration(endpoint: endpoint, directory: directory)
        configuration.listensToChanges = false
        configuration.queueSize = 1_000_000
        configuration.queueBytes = 1 << 30
        configuration.batchSize = 1_000
        let client = try HoldfastClient(configuration: configuration, transport: OneResponseTransport())
        try await client.initialize(user: HoldfastUser(id: "ada"))
        let profiles = UserProfileService(client: client)
        let users = (0..<5_000).map { "user\($0)" }
        for user in users {
            profiles.save(userProfile: UserProfile(userID: user, experimentBucketMap: ["7001": "70012"]))
        }
        try await profiles.load(userIDs: users)

        measure("boolVariation", 1_000_000) { _ in client.boolVariation(flagKey: "flag17", defaultValue: false) }
        measure("boolVariation-unknown", 1_000_000) { _ in client.boolVariation(flagKey: "nothing", defaultValue: false)
        }
        measure("stringVariation", 1_000_000) { _ in client.stringVariation(flagKey: "flag17", defaultValue: "") }
        measure("intVariation-wrong-type", 1_000_000) { _ in client.intVariation(flagKey: "flag17", defaultValue: 0) }
        measure("isEnabled", 1_000_000) { _ in client.isEnabled(flagKey: "flag17") }
        measure("intVariation-variable", 1_000_000) { _ in
            client.intVariation(flagKey: "flag17", variable: "columns", defaultValue: 0)
        }
        measure("lookup-cached", 1_000_000) { profiles.lookup(userID: users[$0 % 2_000]) }
        measure("save-unchanged", 100_000) {
            profiles.save(userProfile: UserProfile(userID: users[$0 % 2_000], experimentBucketMap: ["7001": "70012"]))
        }
        measure("track", 10_000) { client.track(goalID: "purchase", value: Double($0)) }
        await measureTwoThreads("boolVariation-two-threads") {
            client.boolVariation(flagKey: "flag17", defaultValue: false)
        }
        await measureTwoThreads("lookup-two-threads") { profiles.lookup(userID: users[7]) }
        client.destroy()
    }

    private static func measure<Result>(_ name: String, _ count: Int, _ operation: (Int) -> Result) {
        let best =
            (0..<7).map { _ in
                ContinuousClock().measure { for index in 0..<count { use(operation(index)) } }
            }.min() ?? .zero
        print("\(name)\t\(nanoseconds(best, count))")
    }

    /// Each thread's time for one call while the other calls as well.
    private static func measureTwoThreads<Result>(_ name: String, _ operation: @escaping @Sendable () -> Result) async {
        let count = 1_000_000
        var best = Duration.seconds(1_000)
        for _ in 0..<7 {
            let time = await ContinuousClock().measure {
                await withTaskGroup(of: Void.self) { group in
                    for _ in 0..<2 { group.addTask { for _ in 0..<count { use(operation()) } } }
                }
            }
            best = min(best, time)
        }
        print("\(name)\t\(nanoseconds(best, count))")
    }

    private static func nanoseconds(_ duration: Duration, _ count: Int) -> Int {
        Int(Double(duration.components.attoseconds) / 1e9 + Double(duration.components.seconds) * 1e9) / count
    }
}

@inline(never) private func use<Value>(_ value: Value) {}

/// Responds to requests for evaluations and profiles only.
private struct OneResponseTransport: HoldfastTransport {
    func open(_ request: TransportRequest) async throws(HoldfastError) -> TransportResponse {
        let text: String
        switch request.url.path {
        case "/v1/evaluations": text = Self.evaluations
        case "/v1/profiles/lookup": text = Self.profiles(request.body ?? Data())
        default: throw .unreachable("there is no server")
        }
        let (body, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
        continuation.yield(Data(text.utf8))
        continuation.finish()
        return TransportResponse(status: 200, body: body)
    }

    func close() {}

    /// 100 flags with three variables each.
    private static let evaluations: String = {
        let flags = (0..<100).map { number in
            #"{"flag_key":"flag\#(number)","variation_key":"true","variation_id":"\#(number)","experiment_id":"\#(number)","enabled":true,"#
                + #""variables":{"columns":3,"title":"Pay","eager":true},"rule_key":"rule","source":"stored"}"#
        }
        return #"{"user_id":"ada","revision":"1","evaluations":[\#(flags.joined(separator: ","))]}"#
    }()

    private static func profiles(_ body: Data) -> String {
        let users = (try? JSONDecoder().decode([String: [String]].self, from: body))?["user_ids"] ?? []
        let profiles = users.map {
            #"{"user_id":"\#($0)","experiment_bucket_map":{"7001":{"variation_id":"70012"},"7002":{"variation_id":"1"}}}"#
        }
        return #"{"profiles":[\#(profiles.joined(separator: ","))]}"#
    }
}
