import Foundation

@testable import HoldfastClient

/// The built `holdfast serve` with a project of one experiment, two flags and a few attributes.
final class RealServer: Sendable {
    let directory: TemporaryDirectory
    let port: Int
    private let program: Program
    private let transport = URLSessionTransport()
    private let adminToken: String?

    /// - Parameters:
    ///   - former: a server that was killed: goes on with its database, at its port.
    ///   - tokens: the path of a tokens file.
    ///   - adminToken: the secret of a token of scope `admin` in this file.
    init(after former: RealServer? = nil, tokens: String? = nil, adminToken: String? = nil) async throws {
        self.adminToken = adminToken
        directory = try former?.directory ?? TemporaryDirectory()
        program = try Program(
            "holdfast",
            [
                "serve", "--listen", "127.0.0.1:\(former?.port ?? 0)", "--database", directory.path("holdfast.db"),
                "--log-format", "json",
            ]
                + (tokens.map { ["--tokens-file", $0] } ?? []),
            reading: .errors)
        guard let line = await program.line(where: { $0.contains(#""message":"listening""#) }),
            let start = line.range(of: #""address":"http://127.0.0.1:"#),
            let port = Int(line[start.upperBound...].prefix(while: \.isNumber))
        else { throw Failure(description: "the server did not start: \(program.output)") }
        self.port = port
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    var endpoint: URL {
        get throws { try Self.url("http://127.0.0.1:\(port)") }
    }

    private static func url(_ text: String) throws -> URL {
        guard let url = URL(string: text) else { throw Failure(description: text) }
        return url
    }

    func kill() {
        program.kill()
    }

    /// Sends a request as an administrator does.
    @discardableResult
    func request(_ method: String, _ target: String, _ body: String? = nil) async throws -> String {
        var request = TransportRequest(
            method: method, url: try Self.url("http://127.0.0.1:\(port)\(target)"), timeout: .seconds(60))
        request.body = body.map { Data($0.utf8) }
        if let adminToken { request.fields["Authorization"] = "Bearer \(adminToken)" }
        let answer = try await transport.open(request)
        let text = String(decoding: try await answer.collected(), as: UTF8.self)
        guard (200..<300).contains(answer.status) else { throw Failure(description: "\(method) \(target): \(text)") }
        return text
    }

    func putDatafile(revision: Int, controlEnd: Int = 5_000, columns: Int = 3) async throws {
        try await request("PUT", "/v1/datafile", Self.datafile(revision, controlEnd, columns))
    }

    private static func datafile(_ revision: Int, _ controlEnd: Int, _ columns: Int) -> String {
        #"""
        {"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"shop","groups":[],"audiences":[],
         "events":[{"id":"401","key":"purchase","experimentIds":["7001"]}],"attributes":[{"id":"501","key":"country"}],
         "typedAudiences":[{"id":"601","name":"Germans","conditions":["and",{"type":"custom_attribute","match":"exact","name":"country","value":"de"}]}],
         "experiments":[{"id":"7001","key":"checkout_test","layerId":"1","status":"Running","audienceIds":["601"],"forcedVariations":{},
          "variations":[{"id":"70011","key":"control","featureEnabled":false,"variables":[]},
           {"id":"70012","key":"new","featureEnabled":true,"variables":[{"id":"801","value":"\#(columns)"}]}],
          "trafficAllocation":[{"entityId":"70011","endOfRange":\#(controlEnd)},{"entityId":"70012","endOfRange":10000}]}],
         "featureFlags":[{"id":"9001","key":"checkout","rolloutId":"","experimentIds":["7001"],
          "variables":[{"id":"801","key":"columns","type":"integer","defaultValue":"1"}]}],"rollouts":[]}
        """#
    }

    /// A client of this server.
    func client(
        in directory: TemporaryDirectory, _ change: (inout HoldfastConfiguration) -> Void = { _ in }
    ) throws -> HoldfastClient {
        var configuration = HoldfastConfiguration(endpoint: try endpoint, directory: directory.url)
        change(&configuration)
        return try HoldfastClient(configuration: configuration)
    }

    /// The goal events that the server has, as they are exported.
    func goalEvents() async throws -> [HoldfastValue] {
        try await request("GET", "/v1/events").split(separator: "\n").map {
            try JSONDecoder().decode(HoldfastValue.self, from: Data($0.utf8))
        }
    }

    func exposures() async throws -> [HoldfastValue] {
        try await request("GET", "/v1/exposures").split(separator: "\n").map {
            try JSONDecoder().decode(HoldfastValue.self, from: Data($0.utf8))
        }
    }
}
