import HTTPServer
import JSON

/// A tool that assistants may call: a native route with a name, a description for the model, and the arguments that the
/// route takes. ``MCPTools`` performs the calls.
struct MCPTool {
    /// An argument, and the part of the native request in which it is sent.
    struct Argument {
        enum Location {
            /// The parameter of this name in the pattern of the route.
            case path
            case query
            /// The header field with the SDK key of the project.
            case project
            case body
        }

        let name: String
        let location: Location
        /// The type in JSON Schema.
        let type: String
        /// The description for the model.
        let text: String
        var isRequired = false

        /// The JSON Schema of the argument.
        var schema: JSONValue { ["type": .string(type), "description": .string(text)] }
    }

    let name: String
    /// The method of the native route.
    let method: Method
    /// The pattern of the native route.
    let pattern: String
    /// The description for the model.
    let text: String
    let arguments: [Argument]
    /// Whether the tool previews a change. The response then has a ``ChangeToken`` for ``apply``.
    var previews = false

    /// The tool as `tools/list` describes it.
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
                "readOnlyHint": .bool(name != Self.apply.name), "destructiveHint": .bool(name == Self.apply.name),
            ],
        ]
    }
}

// MARK: - The table

extension MCPTool {
    private static let project = Argument(
        name: "project", location: .project, type: "string",
        text: "The SDK key of the project; by default the default one.")
    private static let key = Argument(
        name: "key", location: .path, type: "string", text: "The key.", isRequired: true)
    private static let page = [
        Argument(name: "q", location: .query, type: "string", text: "Only those whose key or name contains this text."),
        Argument(name: "limit", location: .query, type: "integer", text: "At most so many, 1 to 1000; by default 100."),
        Argument(name: "after", location: .query, type: "string", text: "The `next` of the page before."),
        project,
    ]
    private static let moves = Argument(
        name: "moves", location: .query, type: "string",
        text: "'allow' if the change may move enrolled users; by default it is refused.")

    /// The only tool that changes something. A call sends the request in the change token. The method and the pattern
    /// only determine the callers to whom the tool is listed.
    static let apply = MCPTool(
        name: "apply_change", method: .put, pattern: "/v1/experiments/{key}",
        text: "Makes a change that a preview tool has shown, if nothing has changed since. Ask the person first.",
        arguments: [
            Argument(
                name: "change_token", location: .body, type: "string",
                text: "The `change_token` of the preview, not older than 10 minutes.", isRequired: true)
        ])

    static let all: [MCPTool] = [
        MCPTool(
            name: "list_experiments", method: .get, pattern: "/v1/experiments",
            text: "Lists experiments (A/B tests) with their status, variations and traffic.", arguments: page),
        MCPTool(
            name: "get_experiment", method: .get, pattern: "/v1/experiments/{key}",
            text: "Shows one experiment with its plan, schedule, ramp and conclusion.", arguments: [key, project]),
        MCPTool(
            name: "list_flags", method: .get, pattern: "/v1/flags",
            text: "Lists feature flags with their variations and rules.", arguments: page),
        MCPTool(
            name: "get_flag", method: .get, pattern: "/v1/flags/{key}", text: "Shows one feature flag.",
            arguments: [key, project]),
        MCPTool(
            name: "list_metrics", method: .get, pattern: "/v1/metrics",
            text: "Lists the metrics that experiments measure.", arguments: page),
        MCPTool(
            name: "get_metric", method: .get, pattern: "/v1/metrics/{key}", text: "Shows how one metric is computed.",
            arguments: [key, project]),
        MCPTool(
            name: "get_results", method: .get, pattern: "/v1/experiments/{key}/results",
            text:
                "Shows the results of an experiment with intervals and warnings. Without goal and metric, those of its plan "
                + "with the verdict: ship, stop, continue or invalid.",
            arguments: [
                key,
                Argument(name: "goal", location: .query, type: "string", text: "The name of a goal event."),
                Argument(name: "metric", location: .query, type: "string", text: "The key of a metric."), project,
            ]),
        MCPTool(
            name: "plan_experiment", method: .post, pattern: "/v1/experiments/{key}/plan",
            text: "Estimates how many users and days an experiment needs. Changes nothing.",
            arguments: [
                key,
                Argument(
                    name: "plan", location: .body, type: "object",
                    text: "The body of POST /v1/experiments/{key}/plan, such as {\"metric\":\"KEY\"}.", isRequired: true
                ),
                project,
            ]),
        MCPTool(
            name: "explain_decision", method: .get, pattern: "/v1/profiles/{user_id}/experiments/{experiment}/explain",
            text: "Explains step by step why a user gets a variation of an experiment, or none.",
            arguments: [
                Argument(name: "user_id", location: .path, type: "string", text: "The user's id.", isRequired: true),
                Argument(
                    name: "experiment", location: .path, type: "string", text: "The experiment's key or id.",
                    isRequired: true),
                project,
            ]),
        MCPTool(
            name: "preview_experiment", method: .post, pattern: "/v1/experiments/{key}/preview",
            text:
                "Shows what creating or changing an experiment would do: which share of new users would change, how many of "
                + "enrolled users would move, and warnings. Changes nothing; returns the token for apply_change.",
            arguments: [
                key,
                Argument(
                    name: "experiment", location: .body, type: "object",
                    text: "The body of PUT /v1/experiments/{key}: what get_experiment shows, with the change.",
                    isRequired: true), moves, project,
            ], previews: true),
        MCPTool(
            name: "preview_flag", method: .post, pattern: "/v1/flags/{key}/preview",
            text:
                "Shows what creating or changing a flag would do, and how many people would move. Changes nothing; returns "
                + "the token for apply_change.",
            arguments: [
                key,
                Argument(
                    name: "flag", location: .body, type: "object",
                    text: "The body of PUT /v1/flags/{key}: what get_flag shows, with the change.", isRequired: true),
                moves, project,
            ], previews: true),
        apply,
    ]
}
