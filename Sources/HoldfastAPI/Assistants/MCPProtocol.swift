import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The Model Context Protocol over HTTP, by which language model clients find and call tools: Streamable HTTP with JSON
/// responses, without streams and sessions. It supports the versions with the handshake `initialize`, and the version
/// without it.
///
/// This file has the messages (JSON-RPC 2.0); the tools themselves are in ``MCPTools``.
///
/// - SeeAlso: modelcontextprotocol.io, "Base protocol" and "Tools" of each version.
struct MCPProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/mcp"]

    init(_ loop: LoopServices) {
        let endpoint = MCPEndpoint(
            tools: MCPTools(loop), build: loop.services.build, origins: loop.services.options.allowedOrigins)
        routes = [APIRoute(.post, "/mcp", scope: .token(.read), endpoint.post).atEdge]
    }

    /// Renders an error from before the message was read. The JSON-RPC id is then unknown, and `null` in the response.
    func response(to error: any Error, on _: String?) -> Response {
        let problem = Problem(error)
        let code: RPCError.Code = problem.status == .internalServerError ? .internalError : .invalidRequest
        var response = RPCError(code, problem.sentence).response(to: .null, problem.status)
        response.fields = problem.fields
        return response
    }
}

/// An error object (JSON-RPC 2.0 §5.1).
struct RPCError: Error {
    /// The codes of JSON-RPC 2.0 §5.1, and two of the Model Context Protocol.
    enum Code: Int64 {
        case parseError = -32_700
        case invalidRequest = -32_600
        case methodNotFound = -32_601
        case invalidParameters = -32_602
        case internalError = -32_603
        case headerMismatch = -32_020
        case unsupportedVersion = -32_022

        /// The status that the version without a handshake requires. Earlier versions do not define one.
        var status: Status {
            switch self {
            case .methodNotFound: .notFound
            case .internalError: .ok
            default: .badRequest
            }
        }
    }

    let code: Code
    let message: String
    var data: JSONValue?

    init(_ code: Code, _ message: String, data: JSONValue? = nil) {
        self.code = code
        self.message = message
        self.data = data
    }

    func json(id: JSONValue) -> JSONValue {
        var error = JSONObject()
        error["code"] = .integer(code.rawValue)
        error["message"] = .string(message)
        if let data { error["data"] = data }
        return ["jsonrpc": "2.0", "id": id, "error": .object(error)]
    }

    func response(to id: JSONValue, _ status: Status? = nil) -> Response {
        .json(json(id: id), status ?? code.status)
    }
}

/// `POST /mcp`: one message, or a batch of messages, which only versions with a handshake may send.
private struct MCPEndpoint {
    let tools: MCPTools
    let build: BuildInfo
    let origins: AllowedOrigins?

    /// The versions in which a client begins with `initialize`, the newest last.
    private static let handshakeVersions = ["2025-03-26", "2025-06-18", "2025-11-25"]
    /// The version without a handshake, in which each request is self-contained.
    private static let statelessVersion = "2026-07-28"
    private static var versions: JSONValue {
        .array((handshakeVersions + [statelessVersion]).map { .string($0) })
    }
    /// The members of `_meta` in messages of the stateless version.
    private static let metaVersion = "io.modelcontextprotocol/protocolVersion"
    private static let metaServer = "io.modelcontextprotocol/serverInfo"
    /// The maximum number of messages in a batch.
    private static let longestBatch = 50

    private static let instructions = """
        Holdfast keeps A/B tests and feature flags. Read with the list, get, explain and results tools. To change an \
        experiment or a flag, call the preview tool, show the person what would change and who would move, and only then \
        call apply_change with the change token of the preview.
        """

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try checkOrigin(request.field("origin"))
        let caller = MCPCaller(request, call)
        let version = request.field("mcp-protocol-version")
        let value: JSONValue
        do throws(CoreError) {
            value = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        } catch {
            return RPCError(.parseError, "\(error)").response(to: .null)
        }
        let isStateless = version == Self.statelessVersion
        if let version, let refusal = Self.refusal(ofVersion: version) { return refusal.response(to: value["id"]) }
        if let batch = value.array, !isStateless { return await respond(toBatch: batch, caller) }
        if isStateless,
            let mismatch = Self.mismatch(
                value, method: request.field("mcp-method"), name: request.field("mcp-name"))
        {
            return mismatch.response(to: value["id"])
        }
        let (response, status) = await respond(to: value, caller, isStateless: isStateless)
        return response.map { .json($0, status) } ?? Response(.accepted)
    }

    /// Returns the error for a version that this server does not support; `nil` for a supported one.
    private static func refusal(ofVersion version: String) -> RPCError? {
        guard version != statelessVersion, !handshakeVersions.contains(version) else { return nil }
        return RPCError(
            .unsupportedVersion, "MCP-Protocol-Version must be one of those of this server",
            data: ["supported": versions, "requested": .string(version)])
    }

    /// Checks the origin of the page that sends the request: it must be this host, or an origin in `--cors-origins`. It
    /// is not sufficient that `Origin` equals `Host`, because the site of the page may control a host name of this
    /// server (DNS rebinding).
    ///
    /// - Parameter origin: the field `Origin`; `nil` if no page has sent the request.
    /// - Throws: 403 for another origin.
    private func checkOrigin(_ origin: String?) throws(Problem) {
        guard let origin else { return }
        let host = origin.firstRange(of: "://").map { origin[$0.upperBound...] } ?? ""
        let name = host.hasPrefix("[") ? host.prefix { $0 != "]" } + "]" : host.prefix { $0 != ":" }
        if ["localhost", "127.0.0.1", "[::1]"].contains(name) || origins?.lists(origin.lowercased()) == true { return }
        throw Problem(.forbidden, "`Origin` must be of this machine, or one of --cors-origins; got '\(origin)'")
    }

    /// Checks that the header fields of the stateless version match the message, because proxies may check only the
    /// header fields.
    ///
    /// - Returns: the error if they do not match.
    private static func mismatch(_ value: JSONValue, method: String?, name: String?) -> RPCError? {
        guard !value["id"].isNull else { return nil }
        let parameters = value["params"]
        guard let version = parameters["_meta"][metaVersion].string else {
            return RPCError(.invalidParameters, "params._meta must have '\(metaVersion)'")
        }
        guard version == statelessVersion, method == value["method"].string,
            method != "tools/call" || name == parameters["name"].string
        else {
            return RPCError(
                .headerMismatch, "MCP-Protocol-Version, Mcp-Method and Mcp-Name must be those of the message")
        }
        return nil
    }

    private func respond(toBatch batch: [JSONValue], _ caller: MCPCaller) async -> Response {
        guard (1...Self.longestBatch).contains(batch.count) else {
            return RPCError(.invalidRequest, "a batch must have 1 to \(Self.longestBatch) messages").response(to: .null)
        }
        var responses: [JSONValue] = []
        for message in batch {
            let (response, _) = await respond(to: message, caller, isStateless: false)
            if let response { responses.append(response) }
        }
        return responses.isEmpty ? Response(.accepted) : .json(.array(responses))
    }

    /// Performs the request of one message.
    ///
    /// - Returns: the response and its HTTP status; no response to a notification, and to a message that is itself a
    ///   response.
    private func respond(
        to message: JSONValue, _ caller: MCPCaller, isStateless: Bool
    ) async -> (response: JSONValue?, status: Status) {
        guard let object = message.object, object["jsonrpc"] == "2.0" else {
            let error = RPCError(.invalidRequest, "a message must be an object of JSON-RPC 2.0")
            return (error.json(id: .null), error.code.status)
        }
        // A notification has no id, and a response of the client has no method. Both are ignored: this server sends no
        // requests to clients.
        guard let method = object["method"]?.string, let id = object["id"] else { return (nil, .accepted) }
        guard id.string != nil || id.integer != nil else {
            let error = RPCError(.invalidRequest, "`id` must be a string or a whole number")
            return (error.json(id: .null), error.code.status)
        }
        do throws(RPCError) {
            let value = try await result(of: method, object["params"] ?? [:], caller)
            var result = value.object ?? JSONObject()
            if isStateless {
                result["resultType"] = "complete"
                result["_meta"] = [Self.metaServer: server]
                if method != "tools/call" {
                    // The client may keep the result for a minute (`ttlMs`), but must not share it: the list of tools
                    // depends on the caller.
                    result["ttlMs"] = 60_000
                    result["cacheScope"] = "private"
                }
            }
            return (["jsonrpc": "2.0", "id": id, "result": .object(result)], .ok)
        } catch {
            return (error.json(id: id), isStateless ? error.code.status : .ok)
        }
    }

    private var server: JSONValue { ["name": .string(build.name), "version": .string(build.version)] }

    /// Performs a method of the protocol.
    private func result(
        of method: String, _ parameters: JSONValue, _ caller: MCPCaller
    ) async throws(RPCError) -> JSONValue {
        switch method {
        case "initialize":
            let requested = parameters["protocolVersion"].string
            let version = requested.flatMap { Self.handshakeVersions.contains($0) ? $0 : nil }
            return [
                "protocolVersion": .string(version ?? Self.handshakeVersions.last ?? ""),
                "capabilities": ["tools": [:]], "serverInfo": server, "instructions": .string(Self.instructions),
            ]
        case "server/discover":
            return [
                "supportedVersions": Self.versions, "capabilities": ["tools": [:]],
                "instructions": .string(Self.instructions),
            ]
        case "ping": return [:]
        case "tools/list": return ["tools": .array(tools.descriptions(for: caller))]
        case "tools/call":
            guard let name = parameters["name"].string else {
                throw RPCError(.invalidParameters, "`name` must be the name of a tool")
            }
            let arguments = parameters["arguments"].object ?? JSONObject()
            return try await tools.call(name, arguments, caller)
        default:
            throw RPCError(.methodNotFound, "the method '\(method.shortened(to: CoreError.longestQuote))' is unknown")
        }
    }
}

extension JSONValue {
    /// A member of an object; `null` if there is none.
    fileprivate subscript(_ key: String) -> JSONValue { object?[key] ?? .null }
}

/// The caller of tools, and the credentials that its requests to native routes have.
struct MCPCaller {
    let call: Call
    let author: Author
    /// The header fields that identify the caller to native routes.
    let fields: [(name: String, value: String)]
    let peer: IPAddress
    /// The secret of the caller's token; empty if the server requires no tokens.
    let secret: [UInt8]

    init(_ request: borrowing Request, _ call: Call) {
        self.call = call
        author = call.author(request)
        peer = request.peer
        let secret = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key"))
        self.secret = call.admission.token == nil ? [] : Array((secret ?? "").utf8)
        var fields = [("X-Request-Id", request.id.description)]
        if let secret { fields.append(("Authorization", "Bearer \(secret)")) }
        if let forwarded = request.field("x-forwarded-for") { fields.append(("X-Forwarded-For", forwarded)) }
        self.fields = fields
    }
}
