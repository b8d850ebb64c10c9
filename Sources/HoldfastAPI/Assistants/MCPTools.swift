import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The tools of assistants: a table of names for native routes. Each call is a request to its route with the caller's own
/// token, so scopes, projects, approvals and the audit log apply to it as to any other.
struct MCPTools {
    private let requests: LocalRequests
    private let processKey: [UInt8]

    init(_ loop: LoopServices) {
        requests = loop.requests
        processKey = loop.services.processKey
    }

    /// An argument, and its place in the native request.
    private struct Argument {
        enum Place { case path, query, project, body }

        let name: String
        let place: Place
        let type: String
        let text: String
        var isRequired = false

        var schema: JSONValue { ["type": .string(type), "description": .string(text)] }
    }

    private struct Tool {
        let name: String
        let method: Method
        /// The pattern of the native route.
        let pattern: String
        let text: String
        let arguments: [Argument]
        /// Whether the response comes with a token for ``MCPTools/apply``.
        var previews = false

        var description: JSONValue {
            var properties = JSONObject()
            for argument in arguments { properties[argument.name] = argument.schema }
            let required = arguments.filter(\.isRequired).map { JSONValue.string($0.name) }
            return [
                "name": .string(name), "description": .string(text),
                "inputSchema": [
                    "type": "object", "properties": .object(properties), "required": .array(required),
                    "additionalProperties": false,
                ],
                "annotations": [
                    "readOnlyHint": .bool(name != apply.name), "destructiveHint": .bool(name == apply.name),
                ],
            ]
        }
    }

    // MARK: The table

    private static let project = Argument(
        name: "project", place: .project, type: "string",
        text: "The SDK key of the project; by default the default one.")
    private static let key = Argument(
        name: "key", place: .path, type: "string", text: "The key.", isRequired: true)
    private static let page = [
        Argument(name: "q", place: .query, type: "string", text: "Only those whose key or name contains this text."),
        Argument(name: "limit", place: .query, type: "integer", text: "At most so many, 1 to 1000; by default 100."),
        Argument(name: "after", place: .query, type: "string", text: "The `next` of the page before."),
        project,
    ]
    private static let moves = Argument(
        name: "moves", place: .query, type: "string",
        text: "'allow' if the change may move enrolled users; by default it is refused.")

    private static let apply = Tool(
        name: "apply_change", method: .put, pattern: "/v1/experiments/{key}",
        text: "Makes a change that a preview tool has shown, if nothing has changed since. Ask the person first.",
        arguments: [
            Argument(
                name: "change_token", place: .body, type: "string",
                text: "The `change_token` of the preview, not older than 10 minutes.", isRequired: true)
        ])

    private static let table: [Tool] = [
        Tool(
            name: "list_experiments", method: .get, pattern: "/v1/experiments",
            text: "Lists experiments (A/B tests) with their status, variations and traffic.", arguments: page),
        Tool(
            name: "get_experiment", method: .get, pattern: "/v1/experiments/{key}",
            text: "Shows one experiment with its plan, schedule, ramp and conclusion.", arguments: [key, project]),
        Tool(
            name: "list_flags", method: .get, pattern: "/v1/flags",
            text: "Lists feature flags with their variations and rules.", arguments: page),
        Tool(
            name: "get_flag", method: .get, pattern: "/v1/flags/{key}", text: "Shows one feature flag.",
            arguments: [key, project]),
        Tool(
            name: "list_metrics", method: .get, pattern: "/v1/metrics",
            text: "Lists the metrics that experiments measure.", arguments: page),
        Tool(
            name: "get_metric", method: .get, pattern: "/v1/metrics/{key}", text: "Shows how one metric is computed.",
            arguments: [key, project]),
        Tool(
            name: "get_results", method: .get, pattern: "/v1/experiments/{key}/results",
            text:
                "Shows the results of an experiment with intervals and warnings. Without goal and metric, those of its plan "
                + "with the verdict: ship, stop, continue or invalid.",
            arguments: [
                key,
                Argument(name: "goal", place: .query, type: "string", text: "The name of a goal event."),
                Argument(name: "metric", place: .query, type: "string", text: "The key of a metric."), project,
            ]),
        Tool(
            name: "plan_experiment", method: .post, pattern: "/v1/experiments/{key}/plan",
            text: "Estimates how many users and days an experiment needs. Changes nothing.",
            arguments: [
                key,
                Argument(
                    name: "plan", place: .body, type: "object",
                    text: "The body of POST /v1/experiments/{key}/plan, such as {\"metric\":\"KEY\"}.", isRequired: true
                ),
                project,
            ]),
        Tool(
            name: "explain_decision", method: .get, pattern: "/v1/profiles/{user_id}/experiments/{experiment}/explain",
            text: "Explains step by step why a user gets a variation of an experiment, or none.",
            arguments: [
                Argument(name: "user_id", place: .path, type: "string", text: "The user's id.", isRequired: true),
                Argument(
                    name: "experiment", place: .path, type: "string", text: "The experiment's key or id.",
                    isRequired: true),
                project,
            ]),
        Tool(
            name: "preview_experiment", method: .post, pattern: "/v1/experiments/{key}/preview",
            text:
                "Shows what creating or changing an experiment would do: which share of new users would change, how many of "
                + "enrolled users would move, and warnings. Changes nothing; returns the token for apply_change.",
            arguments: [
                key,
                Argument(
                    name: "experiment", place: .body, type: "object",
                    text: "The body of PUT /v1/experiments/{key}: what get_experiment shows, with the change.",
                    isRequired: true), moves, project,
            ], previews: true),
        Tool(
            name: "preview_flag", method: .post, pattern: "/v1/flags/{key}/preview",
            text:
                "Shows what creating or changing a flag would do, and how many people would move. Changes nothing; returns "
                + "the token for apply_change.",
            arguments: [
                key,
                Argument(
                    name: "flag", place: .body, type: "object",
                    text: "The body of PUT /v1/flags/{key}: what get_flag shows, with the change.", isRequired: true),
                moves, project,
            ], previews: true),
        apply,
    ]

    // MARK: Calls

    /// The tools whose routes the caller may call.
    func descriptions(for caller: MCPCaller) -> [JSONValue] {
        Self.table.filter { tool in
            guard let token = caller.call.admission.token else { return true }
            return requests.scope(tool.method, tool.pattern)?.admits(token) ?? false
        }.map(\.description)
    }

    /// - Returns: `{"content","isError"}`. A refusal of the route is returned as a result, so that the model can read
    ///   it.
    /// - Throws: ``RPCError`` if the call itself is invalid.
    func call(_ name: String, _ arguments: JSONObject, _ caller: MCPCaller) async throws(RPCError) -> JSONValue {
        guard let tool = Self.table.first(where: { $0.name == name }) else {
            throw RPCError(.invalidParameters, "no tool has the name '\(name.shortened(to: CoreError.longestQuote))'")
        }
        for argument in arguments where !tool.arguments.contains(where: { $0.name == argument.key }) {
            let known = tool.arguments.map(\.name)
            throw RPCError(
                .invalidParameters,
                "the tool '\(name)' takes \(known.joined(separator: ", ")); got '"
                    + argument.key.shortened(to: CoreError.longestQuote) + "'")
        }
        if name == Self.apply.name { return try await apply(arguments, caller) }
        let request = try request(of: tool, arguments)
        if tool.previews { return await preview(request, caller) }
        return Self.result(await requests.response(to: request.local(caller)))
    }

    /// A native request, without the caller.
    private struct NativeRequest {
        var method: Method
        var path: String
        var query: [(name: String, value: String)] = []
        var project: String?
        var body: [UInt8] = []
        var condition: (name: String, value: String)?

        func local(_ caller: MCPCaller) -> LocalRequest {
            let query = query.map { "\($0.name)=\(Self.escaped($0.value))" }.joined(separator: "&")
            var fields = caller.fields
            if let project { fields.append(("X-Optimizely-SDK-Key", project)) }
            if let condition { fields.append(condition) }
            return LocalRequest(
                method.name.description, path + (query.isEmpty ? "" : "?\(query)"), fields: fields, body: body,
                peer: caller.peer)
        }

        static func escaped(_ text: String) -> String {
            text.utf8.reduce(into: "") { result, byte in
                let isPlain =
                    byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
                    || "-._~".utf8.contains(byte)
                if isPlain {
                    result.unicodeScalars.append(Unicode.Scalar(byte))
                } else {
                    result += "%" + String(UInt16(byte) + 0x100, radix: 16, uppercase: true).dropFirst()
                }
            }
        }
    }

    private func request(of tool: Tool, _ arguments: JSONObject) throws(RPCError) -> NativeRequest {
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
            switch argument.place {
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
    private func preview(_ asked: NativeRequest, _ caller: MCPCaller) async -> JSONValue {
        var change = asked
        change.method = .put
        change.path = String(asked.path.dropLast("/preview".count))
        var present = change
        (present.method, present.query, present.body) = (.get, [], [])
        let current = await requests.response(to: present.local(caller))
        switch (current.status, current.entityTag) {
        case (.ok, let tag?): change.condition = ("If-Match", tag.text)
        case (.notFound, _): change.condition = ("If-None-Match", "*")
        default: return Self.result(current)
        }
        var preview = asked
        (preview.query, preview.condition) = ([], change.condition)
        let shown = await requests.response(to: preview.local(caller))
        guard shown.status == .ok, let value = try? JSONParser().parse(shown.body) else { return Self.result(shown) }
        let token = ChangeToken(
            path: change.path, query: change.query, project: change.project, body: change.body,
            condition: change.condition, author: caller.author.name,
            expiry: Instant(secondsSince1970: systemWallClock().secondsSince1970) + ChangeToken.lifetime)
        return Self.result(
            [
                "preview": value, "change_token": .string(token.text(key: key(of: caller))),
                "change_token_expires_at": .string(token.expiry.rfc3339),
            ], isError: false)
    }

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

    private func key(of caller: MCPCaller) -> [UInt8] { caller.secret.isEmpty ? processKey : caller.secret }

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
