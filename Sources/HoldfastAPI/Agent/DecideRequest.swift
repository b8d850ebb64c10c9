import Bucketing
import HTTPServer

/// What `POST /v1/decide` is asked.
struct DecideRequest: Sendable {
    enum Form {
        /// Decisions for all flags.
        case all
        /// One decision, not in an array.
        case one
        /// Decisions for the flags that are named.
        case several
    }

    let form: Form
    /// Each once, in the order asked.
    let flagKeys: [Identifier]
    let user: User
    let options: DecideOptions

    init(_ request: AgentRequest) throws(AgentError) {
        let body = request.body
        let optionNames = try body.texts("decideOptions")
        let forcedDecisions = try Self.forcedDecisions(body)
        let attributes = try body.userAttributes()
        let wantsSegments = try body.flag("fetchSegments")
        _ = try body.texts("fetchSegmentsOptions")
        user = User(id: try body.userID(), attributes: attributes, forcedDecisions: forcedDecisions)

        let keys = request.query.values("keys").map { Identifier($0) }
        form = keys.isEmpty ? .all : keys.count == 1 ? .one : .several
        var seen: Set<Identifier> = []
        flagKeys = keys.filter { seen.insert($0).inserted }
        var options = try Self.options(optionNames)
        // The SDKs hold that who asks for one flag wants to know.
        if form == .one { options.remove(.enabledFlagsOnly) }
        self.options = options
        // Segments are kept by a service that is not part of this server.
        guard !wantsSegments else { throw AgentError(.internalServerError, "failed to fetch qualified segments") }
    }

    /// Options for the cache of contextual bandits, which are not decided here.
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
