import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/decide`: decides one flag, several, or all for a user. One read and at most one write of the profile serve
/// all of them.
struct DecideEndpoint {
    let decisions: StickyDecisionService
    let notifications: AgentNotifications

    func post(_ request: AgentRequest) async throws -> AgentResponse {
        let input = try Self.input(request)
        return response(try await decisions.decide(input.query, in: request.project), to: input)
    }

    /// Responds to a request that is not part of a batch.
    func respond(_ request: AgentRequest, _ call: Call) throws(AgentError) {
        let input = try Self.input(request)
        decisions.respond(to: input.query, in: request.project, call) {
            response($0, to: input).httpResponse
        } error: {
            AgentError($0).response.httpResponse
        }
    }

    /// Parses a request.
    ///
    /// - Throws: ``AgentError/undefined`` if it names an unknown flag that another server may just have defined.
    private static func input(_ request: AgentRequest) throws(AgentError) -> DecideRequest {
        let input = try DecideRequest(request)
        if !request.isUpToDate, input.flagKeys.contains(where: { request.project.datafile.flag(key: $0) == nil }) {
            throw .undefined
        }
        return input
    }

    /// Returns the response to a request, and notifies the listeners of its decisions.
    private func response(_ decisions: Decisions, to input: DecideRequest) -> AgentResponse {
        notifications.send(decisions, to: input.query)
        let datafile = decisions.project.datafile
        var encoder = DecisionEncoder(input.query.user, datafile)
        if input.form != .one { encoder.writer.beginArray() }
        for decision in decisions.flags {
            encoder.append(decision)
            guard encoder.writer.count <= AgentResponse.longest else { return AgentResponse.tooLong }
        }
        if !input.query.options.contains(.enabledFlagsOnly) {
            for key in input.flagKeys where datafile.flag(key: key) == nil { encoder.append(unknownFlag: key) }
        }
        if input.form != .one { encoder.writer.endArray() }
        return AgentResponse(.ok, encoder.writer)
    }
}

/// The request of `POST /v1/decide`.
struct DecideRequest: Sendable {
    /// The form of the response.
    enum Form {
        /// The response is an array of decisions for all flags.
        case all
        /// The response is one decision, not an array.
        case one
        /// The response is an array of decisions for the requested flags.
        case several
    }

    let form: Form
    /// The requested flags, each once, in the order of the query.
    let flagKeys: [Identifier]
    let query: DecisionQuery

    init(_ request: AgentRequest) throws(AgentError) {
        let body = request.body
        let optionNames = try body.texts("decideOptions")
        let forcedDecisions = try Self.forcedDecisions(body)
        let attributes = try body.userAttributes(in: request.project)
        // `fetchSegments` has no effect: segments are defined on this server, and every decision uses them. Like every
        // known member, it is refused if its type is wrong.
        _ = try body.flag("fetchSegments")
        _ = try body.texts("fetchSegmentsOptions")
        let user = User(id: try body.userID(), attributes: attributes, forcedDecisions: forcedDecisions)
        let anonymousID = try body.anonymousID(mayNameAny: request.caller.mayNameAnyUser)

        let keys = request.query.values("keys").map { Identifier($0) }
        form =
            switch keys.count {
            case 0: .all
            case 1: .one
            default: .several
            }
        var seen: Set<Identifier> = []
        flagKeys = keys.filter { seen.insert($0).inserted }
        var options = try Self.options(optionNames)
        // As in the SDKs, a request for a single flag always gets its decision.
        if form == .one { options.remove(.enabledFlagsOnly) }
        query = DecisionQuery(
            for: user, anonymousID: anonymousID, form == .all ? .allFlags : .flags(flagKeys), options: options)
    }

    /// Options for the cache of contextual bandits. They have no effect, because this server has no such cache: the
    /// variations of bandits are sticky.
    private static let withoutEffect: Set = ["IGNORE_CMAB_CACHE", "RESET_CMAB_CACHE", "INVALIDATE_USER_CMAB_CACHE"]

    private static func options(_ names: [String]) throws(AgentError) -> DecideOptions {
        var options: DecideOptions = []
        for name in names where !withoutEffect.contains(name) {
            guard let option = DecideOptions(name: name) else {
                throw AgentError(.badRequest, "invalid option: \(name)")
            }
            options.insert(option)
        }
        return options
    }

    /// Parses `forcedDecisions`: the variations that the caller wants for flags or rules.
    private static func forcedDecisions(_ body: AgentBody) throws(AgentError) -> [ForcedDecision] {
        var decisions: [ForcedDecision] = []
        for element in try body.list("forcedDecisions") {
            let entry = try AgentBody(element)
            decisions.append(
                ForcedDecision(
                    flagKey: Identifier(try entry.text("flagKey")), ruleKey: Identifier(try entry.text("ruleKey")),
                    variationKey: Identifier(try entry.text("variationKey"))))
        }
        return decisions
    }
}

/// Encodes decisions in the format of the Agent.
struct DecisionEncoder {
    var writer = JSONWriter()
    private let datafile: Datafile
    /// The encoded user context, which every decision repeats.
    private let userContext: [UInt8]

    init(_ user: User, _ datafile: Datafile) {
        self.datafile = datafile
        var context = JSONWriter()
        context.beginObject()
        context.member("userId", user.id.string)
        context.key("attributes")
        context.agentObject(user.attributes)
        context.endObject()
        userContext = context.finish()
    }

    mutating func append(_ decision: Decision) {
        append(
            flagKey: decision.flagKey, ruleKey: decision.ruleKey, variationKey: decision.variation?.key,
            isEnabled: decision.isEnabled, variables: decision.variables, reasons: decision.reasons)
    }

    mutating func append(unknownFlag key: Identifier) {
        append(
            flagKey: key, ruleKey: nil, variationKey: nil, isEnabled: false, variables: [],
            reasons: [DecisionService.reasonForUnknownFlag(key)])
    }

    private mutating func append(
        flagKey: Identifier, ruleKey: Identifier?, variationKey: Identifier?, isEnabled: Bool,
        variables: [VariableValue], reasons: [String]
    ) {
        writer.beginObject()
        writer.member("variationKey", variationKey?.string ?? "")
        writer.member("enabled", isEnabled)
        writer.member("ruleKey", ruleKey?.string ?? "")
        writer.member("flagKey", flagKey.string)
        writer.key("userContext")
        writer.raw(userContext)
        writer.member("reasons", reasons)
        writer.agentVariables(variables)
        writer.member("isEveryoneElseVariation", isForEveryoneElse(flagKey, ruleKey))
        writer.endObject()
    }

    /// Whether a rule is the last targeted rollout, "everyone else": its key equals its id and begins with `default-`.
    private func isForEveryoneElse(_ flagKey: Identifier, _ ruleKey: Identifier?) -> Bool {
        guard let ruleKey, ruleKey.string.hasPrefix("default-"),
            let rule = datafile.flag(key: flagKey)?.rollout?.rules.first(where: { $0.key == ruleKey })
        else { return false }
        return rule.id == rule.key
    }
}
