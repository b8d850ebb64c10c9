import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /ofrep/v1/evaluate/flags/{key}` and `/ofrep/v1/evaluate/flags`: one flag, and all flags of a user. New
/// assignments are stored, and exposures recorded, as by `/v1/decide`.
struct OFREPEvaluation {
    let decisions: StickyDecisionService
    let projects: ProjectView
    /// The path of the stream that announces changes to a provider.
    let changesPath: String

    /// Evaluates one flag. Responds by callbacks, as `/v1/decide` does for one flag.
    func evaluateOne(_ request: borrowing Request, _ call: Call) throws {
        guard let key = request.parameter(0) else {
            throw OFREPError(.general, "the key in the path must be UTF-8")
        }
        do {
            let user = try request.withBody { bytes throws(OFREPError) in try OFREPContext(bytes).identifiedUser() }
            let project = try project(request, call)
            let flagKey = Identifier(key)
            guard project.datafile.flag(key: flagKey) != nil else {
                throw OFREPError.notFound(flagKey, in: project.datafile)
            }
            let query = try OFREPContext.usable(
                DecisionQuery(for: user, .flags([flagKey]), options: Self.options(request)), in: project)
            decisions.respond(to: query, in: project, call) {
                try Self.response($0, to: flagKey)
            } error: {
                OFREPError($0, key: key).response
            }
        } catch {
            throw OFREPError(error, key: key)
        }
    }

    /// Returns the response of ``evaluateOne(_:_:)``.
    private static func response(_ decisions: Decisions, to flagKey: Identifier) throws(OFREPError) -> Response {
        let datafile = decisions.project.datafile
        guard let decision = decisions.flags.first else { throw OFREPError.notFound(flagKey, in: datafile) }
        let evaluation = FlagEvaluation(decision, datafile)
        var writer = JSONWriter()
        append(evaluation, to: &writer)
        return .json(writer.finish())
    }

    /// Evaluates all flags, or those that the context lists. Without a targeting key, flags are evaluated without a
    /// user.
    ///
    /// Responds with 304 if `If-None-Match` matches. The entity tag covers the values and variants of all flags: they
    /// can change without a new revision of the datafile. It does not cover the reasons, such as a stored assignment
    /// instead of a new one.
    func evaluateAll(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let parameters = try request.query(knowing: ["flagConfigEtag", "flagConfigLastModified"])
        let context = try request.withBody { bytes throws(OFREPError) in try OFREPContext(bytes) }
        let project = try project(request, call)
        if let announced = parameters["flagConfigEtag"].flatMap({ Int64($0) }), announced > project.version {
            // Another server has announced a change that this one has not seen yet.
            try call.requireUpToDate()
        }
        let unknown = context.flagKeys?.filter { project.datafile.flag(key: $0) == nil } ?? []
        if !unknown.isEmpty { try call.requireUpToDate() }
        let query = try OFREPContext.usable(
            DecisionQuery(
                for: context.user, context.flagKeys.map { .flags($0) } ?? .allFlags, options: Self.options(request)),
            in: project)
        let decided = try await decisions.decide(query, in: project)
        let (json, tag) = Self.encode(decided, unknown, changesPath, for: call.admission.token)
        return .json(json, entityTag: tag, ifNoneMatch: request.field("if-none-match"))
    }

    /// `X-Record-Exposures: false` disables the recording of exposures. It is a header field, because every provider
    /// can be configured to send one.
    private static func options(_ request: borrowing Request) -> DecideOptions {
        request.field("x-record-exposures") == "false" ? .disableDecisionEvent : []
    }

    /// Returns the project that `X-Optimizely-SDK-Key` names, because OFREP has no notion of projects.
    private func project(_ request: borrowing Request, _ call: Call) throws(OFREPError) -> Project {
        do throws(CoreError) {
            return try projects.project(named: request.sdkKey, for: call.access)
        } catch {
            if error.kind == .forbidden { throw OFREPError(error) }
            throw OFREPError(error.kind == .notFound ? .flagNotFound : .general, error.detail)
        }
    }

    // MARK: Responses

    /// Encodes the response of ``evaluateAll(_:_:)``, and computes its entity tag.
    ///
    /// - Parameters:
    ///   - unknown: the requested flags that the project does not have, which are listed as errors.
    ///   - token: the caller's, for the ticket in the address of the stream of changes.
    private static func encode(
        _ decisions: Decisions, _ unknown: [Identifier], _ changesPath: String, for token: Token?
    ) -> (json: [UInt8], tag: EntityTag) {
        let project = decisions.project
        let evaluations = decisions.flags.map { FlagEvaluation($0, project.datafile) }
        // The tokens of persons and of edges' callers have no secret, so they cannot make a ticket.
        let ticket = token.flatMap { token in
            token.person == nil && token.edge == nil ? StreamTicket(for: token, at: systemWallClock()).text : nil
        }
        var writer = JSONWriter(capacity: 512 + evaluations.count * 256)
        writer.beginObject()
        writer.key("flags")
        writer.beginArray()
        for evaluation in evaluations { append(evaluation, to: &writer) }
        for key in unknown { OFREPError.notFound(key, in: project.datafile).append(to: &writer) }
        writer.endArray()
        appendEventStreams(changesTarget(changesPath, project, ticket), to: &writer)
        writer.key("metadata")
        writer.beginObject()
        writer.member("sdkKey", project.sdkKey)
        writer.member("revision", project.datafile.revision)
        writer.endObject()
        writer.endObject()
        return (writer.finish(), entityTag(of: evaluations, unknown, ticket))
    }

    /// Returns the entity tag of a response. It covers the values and variants of flags, and the ticket in the address
    /// of the stream: after a 304 a provider keeps the address, whose ticket expires.
    private static func entityTag(
        of evaluations: [FlagEvaluation], _ unknown: [Identifier], _ ticket: String?
    ) -> EntityTag {
        var writer = JSONWriter(capacity: evaluations.count * 64)
        writer.beginArray()
        writer.value(.string(ticket ?? ""))
        for evaluation in evaluations {
            writer.beginObject()
            appendValue(evaluation, to: &writer)
            writer.member("variant", evaluation.variationKey?.string ?? "")
            writer.endObject()
        }
        for key in unknown { writer.value(.string(key.string)) }
        writer.endArray()
        return EntityTag(of: writer.finish())
    }

    /// Writes the address of the stream of changes.
    private static func appendEventStreams(_ target: String, to writer: inout JSONWriter) {
        writer.key("eventStreams")
        writer.beginArray()
        writer.beginObject()
        writer.member("type", "sse")
        writer.key("endpoint")
        writer.beginObject()
        // The address has no origin, because the server does not know the one under which a proxy publishes it.
        writer.member("requestUri", target)
        writer.endObject()
        writer.member("inactivityDelaySec", 120)
        writer.endObject()
        writer.endArray()
    }

    /// Returns the path and query of the stream of changes.
    private static func changesTarget(_ path: String, _ project: Project, _ ticket: String?) -> String {
        let sdkKey = project.sdkKey.replacing("+", with: "%2B")
        let target = "\(path)?sdk_key=\(sdkKey)&\(OFREPChanges.versionParameter)=\(project.version)"
        return ticket.map { "\(target)&\(OFREPChanges.ticketParameter)=\($0)" } ?? target
    }

    /// Writes the key of the flag and its value.
    ///
    /// - Returns: whether the flag has a value. Without one, a provider returns the default in the code of its caller.
    @discardableResult
    private static func appendValue(_ evaluation: FlagEvaluation, to writer: inout JSONWriter) -> Bool {
        writer.member("key", evaluation.flagKey.string)
        guard evaluation.reason != .disabled, let value = evaluation.value, !value.isNull else { return false }
        writer.key("value")
        writer.value(value)
        return true
    }

    /// Writes an evaluation, as a response or among the flags of a response.
    private static func append(_ evaluation: FlagEvaluation, to writer: inout JSONWriter) {
        writer.beginObject()
        let hasValue = appendValue(evaluation, to: &writer)
        writer.member("reason", reason(of: evaluation, hasValue: hasValue).rawValue)
        writer.member("variant", evaluation.variationKey?.string ?? "")
        writer.key("metadata")
        writer.beginObject()
        writer.member("holdfastReason", evaluation.reason.rawValue)
        writer.member("enabled", evaluation.isEnabled)
        writer.member("flagVersion", evaluation.flagVersion)
        if let key = evaluation.ruleKey { writer.member("ruleKey", key.string) }
        if let id = evaluation.experimentID { writer.member("experimentId", id.string) }
        if !evaluation.tags.isEmpty {
            writer.member("tags", evaluation.tags.map(\.string).joined(separator: ","))
        }
        writer.endObject()
        writer.endObject()
    }

    /// Resolution reasons of OpenFeature's specification.
    enum Reason: String, CaseIterable {
        /// The value is the same for everybody, so no rule was evaluated.
        case isStatic = "STATIC"
        /// No rule applies to the user.
        case `default` = "DEFAULT"
        case targetingMatch = "TARGETING_MATCH"
        case split = "SPLIT"
        case disabled = "DISABLED"
        case unknown = "UNKNOWN"
    }

    private static func reason(of evaluation: FlagEvaluation, hasValue: Bool) -> Reason {
        switch evaluation.reason {
        case .targeted, .override, .whitelist, .requested: .targetingMatch
        case .experiment, .sticky, .holdout: .split
        case .default where !hasValue: .unknown
        case .default: evaluation.isStatic ? .isStatic : .default
        case .disabled: .disabled
        }
    }
}
