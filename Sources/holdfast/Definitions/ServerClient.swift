import ArgumentParser
import CHTTPClient
import FoundationEssentials
import Glibc
import HoldfastCore
import JSON

/// The server that a command talks to.
struct ServerOptions: ParsableArguments {
    @Option(
        help: .init(
            "The server (default: http:// at HOLDFAST_LISTEN, or at 127.0.0.1:8080). HOLDFAST_TOKEN has the token.",
            valueName: "url"))
    var url: String?

    /// The names of its settings and of a project's, which may be in the environment that it shares with the server.
    static let settings = ["url", "token", "sdk-key"]

    /// - Parameters:
    ///   - other: the address of another server.
    ///   - tokenSetting: the setting of its token, if it is not the usual one.
    func client(at other: String? = nil, sdkKey: String? = nil, tokenSetting: String? = nil) throws -> ServerClient {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var (url, token): (String?, String?)
        if let other { url = other } else { settings.apply(self.url, "url", to: &url) }
        // Not an option, which all users of the host could see.
        settings.apply(nil, "token", to: &token)
        if let tokenSetting { settings.apply(nil, tokenSetting, to: &token) }
        let address = try url ?? HealthCommand.defaultAddress(settings)
        guard let target = URL(string: address), ["http", "https"].contains(target.scheme), target.host != nil else {
            throw Failure("--url must be an http or https URL; got '\(address)'")
        }
        let base = address.hasSuffix("/") ? String(address.dropLast()) : address
        return try ServerClient(base: base, token: token, sdkKey: sdkKey)
    }
}

/// The server that a command talks to, and one of its projects.
struct ProjectOptions: ParsableArguments {
    @OptionGroup var server: ServerOptions

    @Option(help: .init("The project (default: the server's default project).", valueName: "key"))
    var sdkKey: String?

    func client() throws -> ServerClient { try server.client(sdkKey: projectKey()) }

    /// The SDK key that was given; `nil` for the default project.
    func projectKey() -> String? {
        var sdkKey: String?
        Settings(environment: ProcessInfo.processInfo.environment).apply(self.sdkKey, "sdk-key", to: &sdkKey)
        return sdkKey
    }
}

/// Sends requests to a server, one at a time.
struct ServerClient {
    private let base: String
    private let fields: [String]
    /// Counting the users whom a change would move can take long.
    private static let seconds = 600

    fileprivate init(base: String, token: String?, sdkKey: String?) throws(Failure) {
        self.base = base
        // curl would wait for the server's consent to a large body.
        var fields = ["Content-Type: application/json", "Expect:"]
        if let token { fields.append("Authorization: Bearer \(token)") }
        if let sdkKey { fields.append("X-Optimizely-SDK-Key: \(sdkKey)") }
        guard fields.allSatisfy({ !$0.utf8.contains { $0 < 0x20 } }) else {
            throw Failure("the token and the SDK key must have no control characters")
        }
        self.fields = fields
    }

    /// - Returns: the body of a response with success.
    /// - Throws: ``ServerRefusal`` if the server refuses the request, ``Failure`` if there is no response.
    ///
    /// - Parameter ifMatch: the version that the change is for.
    func send(_ method: String, _ path: String, body: JSONValue? = nil, ifMatch: String? = nil) throws -> JSONValue {
        let conditions = ifMatch.map { ["If-Match: \($0)"] } ?? []
        let bytes = try content(method, path, body: body, accept: "application/json", fields: conditions)
        guard let value = try? JSONParser().parse(bytes) else {
            throw ServerRefusal(server: base, status: 200, problem: nil)
        }
        return value
    }

    /// The same for a response of any type.
    func content(
        _ method: String, _ path: String, body: JSONValue? = nil, accept: String = "*/*", fields more: [String] = []
    ) throws -> [UInt8] {
        let response = try HTTPExchange(
            method, base + path, fields: fields + more + ["Accept: \(accept)"], body: body?.encoded(),
            seconds: Self.seconds, server: base)
        guard (200...299).contains(response.status) else {
            let problem = (try? JSONParser().parse(response.body))?.object
            throw ServerRefusal(server: base, status: response.status, problem: problem)
        }
        return response.body
    }
}

/// A request by libcurl, and the response.
struct HTTPExchange {
    let status: Int
    let body: [UInt8]

    /// - Parameters:
    ///   - seconds: the time limit for the whole exchange.
    ///   - server: what the error names.
    /// - Throws: if there is no complete response.
    init(
        _ method: String, _ url: String, fields: [String], body: [UInt8]? = nil, seconds: Int, server: String
    ) throws(Failure) {
        var pointers: [UnsafePointer<CChar>?] = fields.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for pointer in pointers { free(UnsafeMutablePointer(mutating: pointer)) } }
        let response =
            if let body {
                http_client_send(method, url, &pointers, body, body.count, seconds)
            } else {
                http_client_send(method, url, &pointers, nil, 0, seconds)
            }
        defer { free(response.body) }
        guard response.status != 0 else {
            let reason = withUnsafeBytes(of: response.error) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
            throw Failure("\(server) does not respond: \(reason)")
        }
        status = response.status
        self.body = Array(UnsafeBufferPointer(start: response.body, count: response.length))
    }
}

/// A response that is no success.
struct ServerRefusal: Error, CustomStringConvertible {
    let server: String
    let status: Int
    let problem: JSONObject?

    /// What is wrong with the body.
    var faults: [JSONFault] {
        (problem?["errors"]?.array ?? []).compactMap { element in
            guard let text = element.object?["pointer"]?.string, let reason = element.object?["detail"]?.string else {
                return nil
            }
            return JSONFault(pointer: JSONPointer(string: text), reason: reason)
        }
    }

    var description: String {
        guard let detail = problem?["detail"]?.string else { return "\(server) responds \(status)" }
        if status == 401 { return "\(server) refuses HOLDFAST_TOKEN: \(detail)" }
        return detail.replacing("repeat the request with ?moves=allow", with: "apply with --moves allow")
            .replacing("repeat the request with ?share=allow", with: "apply with --new-ids or --share allow")
            .replacing("`max_removals`", with: "--max-removals")
    }
}
