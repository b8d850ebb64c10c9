import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Lists and calls the tools of assistants (``MCPTool``). Each call is a request to the tool's native route with the
/// caller's own token, so scopes, projects, approvals and the audit log apply to it as to any other request.
///
/// A change takes two calls: a preview shows the effect and returns a ``ChangeToken``, and `apply_change` makes exactly
/// the change of that token.
struct MCPTools {
    private let requests: LocalRequests
    /// The key of the change tokens of callers without a secret.
    private let processKey: [UInt8]

    init(_ loop: LoopServices) {
        requests = loop.requests
        processKey = loop.services.processKey
    }

    // MARK: Calls

    /// The tools whose routes the caller may call.
    func descriptions(for caller: MCPCaller) -> [JSONValue] {
        MCPTool.all.filter { tool in
            guard let token = caller.call.admission.token else { return true }
            return requests.scope(tool.method, tool.pattern)?.admits(token) ?? false
        }.map(\.description)
    }

    /// Calls a tool.
    ///
    /// - Returns: `{"content","isError"}`. A refusal of the route is returned as a result, so that the model can read
    ///   it.
    /// - Throws: ``RPCError`` if the call itself is invalid.
    func call(_ name: String, _ arguments: JSONObject, _ caller: MCPCaller) async throws(RPCError) -> JSONValue {
        guard let tool = MCPTool.all.first(where: { $0.name == name }) else {
            throw RPCError(.invalidParameters, "no tool has the name '\(name.shortened(to: CoreError.longestQuote))'")
        }
        for argument in arguments where !tool.arguments.contains(where: { $0.name == argument.key }) {
            let known = tool.arguments.map(\.name)
            throw RPCError(
                .invalidParameters,
                "the tool '\(name)' takes \(known.joined(separator: ", ")); got '"
                    + argument.key.shortened(to: CoreError.longestQuote) + "'")
        }
        if name == MCPTool.apply.name { return try await apply(arguments, caller) }
        let request = try request(of: tool, arguments)
        if tool.previews { return await preview(request, caller) }
        return Self.result(await requests.response(to: request.local(caller)))
    }

    /// A request to a native route, without the fields that identify the caller.
    private struct NativeRequest {
        var method: Method
        var path: String
        var query: [(name: String, value: String)] = []
        var project: String?
        var body: [UInt8] = []
        /// The header field `If-Match` or `If-None-Match` of a change.
        var condition: (name: String, value: String)?

        /// Returns the request on behalf of a caller.
        func local(_ caller: MCPCaller) -> LocalRequest {
            let query = query.map { "\($0.name)=\(Self.escaped($0.value))" }.joined(separator: "&")
            var fields = caller.fields
            if let project { fields.append(("X-Optimizely-SDK-Key", project)) }
            if let condition { fields.append(condition) }
            return LocalRequest(
                method.name.description, path + (query.isEmpty ? "" : "?\(query)"), fields: fields, body: body,
                peer: caller.peer)
        }

        /// Percent-encodes all bytes but the unreserved characters (RFC 3986 §2.3).
        static func escaped(_ text: String) -> String {
            text.utf8.reduce(into: "") { result, byte in
                let isPlain =
                    byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
                    || "-._~".utf8.contains(byte)
                if isPlain {
                    result.unicodeScalars.append(Unicode.Scalar(byte))
                } else {
                    // Adding 0x100 gives three hexadecimal digits, of which the last two stand for the byte.
                    result += "%" + String(UInt16(byte) + 0x100, radix: 16, uppercase: true).dropFirst()
                }
            }
        }
    }

    /// Returns the request to the route of a tool, with the arguments of a call.
    private func request(of tool: MCPTool, _ arguments: JSONObject) throws(RPCError) -> NativeRequest {
        var request = NativeRequest(method: tool.method, path: tool.pattern)
        for argument in tool.arguments {
            guard let value = arguments[argument.name], !value.isNull else {
                guard !argument.isRequired else { throw RPCError(.invalidParameters, "`\(argument.name)` is required") }
                continue
            }
            let text = value.string ?? value.integer.map { "\($0)" }
            guard argument.type == "object" ? value.object != nil : text != nil else {
                throw RPCError(
                    .invalidParameters, "`\(argument.name)` must be of the type \(argument.type); got \(value.kind)")
            }
            switch argument.location {
            case .path:
                guard let text, !text.isEmpty else {
                    throw RPCError(.invalidParameters, "`\(argument.name)` must not be empty")
                }
                request.path = request.path.replacing("{\(argument.name)}", with: NativeRequest.escaped(text))
            case .query: request.query.append((argument.name, text ?? ""))
            case .project:
                guard let text, (try? SDKKey.check(text)) != nil else {
                    throw RPCError(.invalidParameters, "`project` must be the SDK key of a project")
                }
                request.project = text
            case .body: request.body = value.encoded()
            }
        }
        return request
    }

    // MARK: Changes in two steps

    /// Returns the effect of a change on the current version, with a token to make exactly this change.
    ///
    /// - Parameter requested: the request to the route of the preview, `PATH/preview`. The change is a `PUT` of the
    ///   same body to `PATH`.
    private func preview(_ requested: NativeRequest, _ caller: MCPCaller) async -> JSONValue {
        var change = requested
        change.method = .put
        change.path = String(requested.path.dropLast("/preview".count))
        let currentRequest = NativeRequest(method: .get, path: change.path, project: change.project)
        let current = await requests.response(to: currentRequest.local(caller))
        // The condition ensures that the preview and the change are about this version.
        switch (current.status, current.entityTag) {
        case (.ok, let tag?): change.condition = ("If-Match", tag.text)
        case (.notFound, _): change.condition = ("If-None-Match", "*")
        default: return Self.result(current)
        }
        var previewRequest = requested
        // The query is for the change only, such as `moves`.
        previewRequest.query = []
        previewRequest.condition = change.condition
        let preview = await requests.response(to: previewRequest.local(caller))
        guard preview.status == .ok, let effects = try? JSONParser().parse(preview.body) else {
            return Self.result(preview)
        }
        let token = ChangeToken(
            path: change.path, query: change.query, project: change.project, body: change.body,
            condition: change.condition, author: caller.author.name,
            expiry: Instant(secondsSince1970: systemWallClock().secondsSince1970) + ChangeToken.lifetime)
        return Self.result(
            [
                "preview": effects, "change_token": .string(token.text(key: key(of: caller))),
                "change_token_expires_at": .string(token.expiry.rfc3339),
            ], isError: false)
    }

    /// Makes the change of a preview's token.
    private func apply(_ arguments: JSONObject, _ caller: MCPCaller) async throws(RPCError) -> JSONValue {
        guard let text = arguments["change_token"]?.string else {
            throw RPCError(.invalidParameters, "`change_token` is required")
        }
        guard let token = ChangeToken(text, key: key(of: caller)), token.author == caller.author.name else {
            return Self.result(
                ["detail": "`change_token` must be that of a preview for the same token of the server; it is not"],
                isError: true)
        }
        guard token.expiry > systemWallClock() else {
            return Self.result(
                ["detail": "the preview is older than 10 minutes; preview the change again"], isError: true)
        }
        let request = NativeRequest(
            method: .put, path: token.path, query: token.query, project: token.project, body: token.body,
            condition: token.condition)
        return Self.result(await requests.response(to: request.local(caller)))
    }

    /// Returns the key of the caller's change tokens: the caller's secret, or a key of this process.
    private func key(of caller: MCPCaller) -> [UInt8] { caller.secret.isEmpty ? processKey : caller.secret }

    /// Returns the result of a call: the response of the route as text.
    private static func result(_ response: CollectedResponse) -> JSONValue {
        result(
            text: String(decoding: response.body, as: UTF8.self),
            isError: response.status.code >= 400 || !response.isComplete)
    }

    private static func result(_ value: JSONValue, isError: Bool) -> JSONValue {
        result(text: String(decoding: value.encoded(), as: UTF8.self), isError: isError)
    }

    private static func result(text: String, isError: Bool) -> JSONValue {
        ["content": [["type": "text", "text": .string(text)]], "isError": .bool(isError)]
    }
}
