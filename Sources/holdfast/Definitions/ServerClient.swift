import ArgumentParser
import CHTTPClient
import FoundationEssentials
import Glibc
import HoldfastCore
import JSON

/// Options of commands that send requests to a server.
struct ServerOptions: ParsableArguments {
    @Option(
        help: .init(
            "The server (default: http:// at HOLDFAST_LISTEN, or at 127.0.0.1:8080). HOLDFAST_TOKEN has the token.",
            valueName: "url"))
    var url: String?

    /// The settings of these options and of ``ProjectOptions``. The server does not warn of them as unknown, because it
    /// may share its environment with commands.
    static let settings = ["url", "token", "sdk-key"]

    /// Returns a client with the URL and token of the options and the environment.
    ///
    /// - Parameters:
    ///   - other: the URL of another server; `nil` for the one of the options.
    ///   - sdkKey: the project of all requests; `nil` for the server's default project.
    ///   - tokenSetting: a setting whose token, if given, replaces the token of `HOLDFAST_TOKEN`.
    func client(at other: String? = nil, sdkKey: String? = nil, tokenSetting: String? = nil) throws -> ServerClient {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var url = other
        if other == nil { settings.apply(self.url, "url", to: &url) }
        var token: String?
        // The token is not an option, because all users of a host can see the arguments of a process.
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

/// Options of commands that send requests about one project of a server.
struct ProjectOptions: ParsableArguments {
    @OptionGroup var server: ServerOptions

    @Option(help: .init("The project (default: the server's default project).", valueName: "key"))
    var sdkKey: String?

    /// Returns a client whose requests are about the project.
    func client() throws -> ServerClient { try server.client(sdkKey: projectKey()) }

    /// Returns the SDK key of the option or the environment; `nil` for the default project.
    func projectKey() -> String? {
        var sdkKey: String?
        Settings(environment: ProcessInfo.processInfo.environment).apply(self.sdkKey, "sdk-key", to: &sdkKey)
        return sdkKey
    }
}

/// Sends requests to a server, one at a time.
struct ServerClient {
    /// The URL of the server, without a slash at the end.
    private let base: String
    /// The header fields of each request.
    private let fields: [String]
    /// The time limit of a request in seconds. It is long because counting the users whom a change would move takes
    /// time.
    private static let seconds = 600

    fileprivate init(base: String, token: String?, sdkKey: String?) throws(Failure) {
        self.base = base
        // An empty `Expect` prevents curl from waiting for `100 Continue` before it sends a large body.
        var fields = ["Content-Type: application/json", "Expect:"]
        if let token { fields.append("Authorization: Bearer \(token)") }
        if let sdkKey { fields.append("X-Optimizely-SDK-Key: \(sdkKey)") }
        guard fields.allSatisfy({ !$0.utf8.contains { $0 < 0x20 } }) else {
            throw Failure("the token and the SDK key must have no control characters")
        }
        self.fields = fields
    }

    /// Sends a request and parses the response as JSON.
    ///
    /// - Parameter ifMatch: the entity tag of the definitions that the change is based on.
    /// - Throws: ``ServerRefusal`` if the status is not 200 to 299 or the body is not JSON, ``Failure`` if there is no
    ///   response.
    func send(_ method: String, _ path: String, body: JSONValue? = nil, ifMatch: String? = nil) throws -> JSONValue {
        let conditions = ifMatch.map { ["If-Match: \($0)"] } ?? []
        let bytes = try content(method, path, body: body, accept: "application/json", fields: conditions)
        guard let value = try? JSONParser().parse(bytes) else {
            throw ServerRefusal(server: base, status: 200, problem: nil)
        }
        return value
    }

    /// Sends a request and returns the body of the response, of any type.
    ///
    /// - Throws: ``ServerRefusal`` if the status is not 200 to 299, ``Failure`` if there is no response.
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

/// A response that is an error: its status is not 200 to 299, or its body is not JSON.
struct ServerRefusal: Error, CustomStringConvertible {
    /// The URL of the server.
    let server: String
    /// The status of the response. It is 200 for any successful response whose body is not JSON.
    let status: Int
    /// The problem in the response (RFC 9457); `nil` if it has none.
    let problem: JSONObject?

    /// The faults of the request's body that the response lists.
    var faults: [JSONFault] {
        (problem?["errors"]?.array ?? []).compactMap { element in
            guard let text = element.object?["pointer"]?.string, let reason = element.object?["detail"]?.string else {
                return nil
            }
            return JSONFault(pointer: JSONPointer(string: text), reason: reason)
        }
    }

    /// The detail of the problem, in which query parameters are replaced by the options of commands.
    var description: String {
        guard let detail = problem?["detail"]?.string else { return "\(server) responds \(status)" }
        if status == 401 { return "\(server) refuses HOLDFAST_TOKEN: \(detail)" }
        return detail.replacing("repeat the request with ?moves=allow", with: "apply with --moves allow")
            .replacing("repeat the request with ?share=allow", with: "apply with --new-ids or --share allow")
            .replacing("`max_removals`", with: "--max-removals")
    }
}
