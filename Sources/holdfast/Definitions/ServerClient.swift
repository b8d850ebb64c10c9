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

    @Option(help: .init("The project (default: the server's default project).", valueName: "key"))
    var sdkKey: String?

    /// The names of its settings, which may be in the environment that it shares with the server.
    static let settings = ["url", "token", "sdk-key"]

    func client() throws -> ServerClient {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var (url, token, sdkKey): (String?, String?, String?)
        settings.apply(self.url, "url", to: &url)
        // Not an option, which all users of the host could see.
        settings.apply(nil, "token", to: &token)
        settings.apply(self.sdkKey, "sdk-key", to: &sdkKey)
        let address = try url ?? HealthCommand.defaultAddress(settings)
        guard let target = URL(string: address), ["http", "https"].contains(target.scheme), target.host != nil else {
            throw Failure("--url must be an http or https URL; got '\(address)'")
        }
        let base = address.hasSuffix("/") ? String(address.dropLast()) : address
        return ServerClient(base: base, token: token, sdkKey: sdkKey)
    }
}

/// Sends requests to a server, one at a time.
struct ServerClient {
    let base: String
    let token: String?
    let sdkKey: String?
    /// Counting the users whom a change would move can take long.
    private static let seconds = 600

    /// - Returns: the body of a response with success.
    /// - Throws: ``ServerRefusal`` if the server refuses the request, ``Failure`` if there is no response.
    func send(_ method: String, _ path: String, body: JSONValue? = nil) throws -> JSONValue {
        // curl would wait for the server's consent to a large body.
        var fields = ["Accept: application/json", "Content-Type: application/json", "Expect:"]
        if let token { fields.append("Authorization: Bearer \(token)") }
        if let sdkKey { fields.append("X-Optimizely-SDK-Key: \(sdkKey)") }
        guard fields.allSatisfy({ !$0.utf8.contains { $0 < 0x20 } }) else {
            throw Failure("the token and the SDK key must have no control characters")
        }
        let content = body?.encoded()
        var pointers: [UnsafePointer<CChar>?] = fields.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for pointer in pointers { free(UnsafeMutablePointer(mutating: pointer)) } }
        let response =
            if let content {
                http_client_send(method, base + path, &pointers, content, content.count, Self.seconds)
            } else {
                http_client_send(method, base + path, &pointers, nil, 0, Self.seconds)
            }
        defer { free(response.body) }
        guard response.status != 0 else {
            let reason = withUnsafeBytes(of: response.error) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
            throw Failure("\(base) does not respond: \(reason)")
        }
        let bytes = Array(UnsafeBufferPointer(start: response.body, count: response.length))
        let value = try? JSONParser().parse(bytes)
        guard (200...299).contains(response.status), let value else {
            throw ServerRefusal(server: base, status: response.status, problem: value?.object)
        }
        return value
    }
}

/// A response that is no success.
struct ServerRefusal: Error {
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
        return detail.replacing("repeat the request with ?moves=allow", with: "apply with --moves allow")
    }
}
