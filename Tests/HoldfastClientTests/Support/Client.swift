import Foundation
import Synchronization

@testable import HoldfastClient

/// A client with a stub server and a manual clock.
struct Client {
    let client: HoldfastClient
    let server: StubServer
    let clock: ManualClock
    let directory: TemporaryDirectory

    init(
        directory: TemporaryDirectory? = nil, server: StubServer? = nil, clock: ManualClock? = nil,
        _ change: (inout HoldfastConfiguration) -> Void = { _ in }
    ) throws {
        self.directory = try directory ?? TemporaryDirectory()
        self.server = server ?? StubServer { call throws(HoldfastError) in Client.usual(call) }
        self.clock = clock ?? ManualClock()
        var configuration = HoldfastConfiguration(endpoint: Self.endpoint, directory: self.directory.url)
        configuration.listensToChanges = false
        configuration.reportsEvaluationCounts = false
        configuration.flushInterval = .seconds(30)
        configuration.batchSize = 100
        change(&configuration)
        client = try HoldfastClient(configuration: configuration, transport: self.server, clock: self.clock)
    }

    static let endpoint = URL(string: "http://holdfast.test") ?? URL(fileURLWithPath: "/")

    /// Responds as a server with two flags.
    static func usual(_ call: StubServer.Call) -> StubServer.Response {
        switch call.path {
        case "/v1/evaluations":
            if call.fields["If-None-Match"] == "\"1\"" { return .status(304, ["etag": "\"1\""]) }
            return .json(evaluations(), ["etag": "\"1\""])
        case "/v1/events", "/v1/exposures", "/v1/logins", "/v1/evaluations/counts":
            return .json(results(call))
        case "/v1/profiles", "/v1/profiles/attributes":
            return .json(#"{"imported":\#(call.lines.count),"refused":0,"errors":[]}"#)
        case "/v1/profiles/lookup":
            return .json(#"{"profiles":[null]}"#)
        default:
            return .status(404)
        }
    }

    /// A response that says that each event of a call was stored.
    static func results(_ call: StubServer.Call) -> String {
        let count = (try? JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8)))?.count ?? 0
        let results = (0..<count).map { #"{"index":\#($0),"status":"stored"}"# }
        return #"{"results":[\#(results.joined(separator: ","))]}"#
    }

    static func evaluations(revision: String = "1", enabled: Bool = true, columns: Int = 3) -> String {
        #"""
        {"user_id":"ada","revision":"\#(revision)","evaluations":[
         {"flag_key":"checkout","variation_key":"new","variation_id":"70012","experiment_id":"7001","enabled":\#(enabled),
          "variables":{"columns":\#(columns),"title":"Pay","eager":true,"theme":{"dark":true}},"rule_key":"checkout_test","source":"stored"},
         {"flag_key":"banner","variation_key":null,"variation_id":null,"experiment_id":null,"enabled":false,
          "variables":{"ratio":0.5,"limit":9},"rule_key":null,"source":"none","reasons":["why"]}]}
        """#
    }
}

/// Values that a closure of the client has added.
final class Log<Value: Sendable>: Sendable {
    private let state = Mutex<[Value]>([])

    var all: [Value] { state.withLock { $0 } }

    func add(_ value: Value) { state.withLock { $0.append(value) } }
}

/// A temporary directory that removes itself.
final class TemporaryDirectory: Sendable {
    let url = FileManager.default.temporaryDirectory.appendingPathComponent("holdfast-client-" + UUID().uuidString)

    init() throws {
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(at: url)
    }

    func path(_ name: String) -> String {
        url.appendingPathComponent(name).path
    }
}
