import Bucketing
import HTTPServer
import HoldfastCore
import JSON
internal import Synchronization

/// Sends the Agent's notifications about decisions and events of this process to its listeners, the open streams of
/// ``AgentNotificationsEndpoint``. Thread-safe: handlers of all event loops send.
final class AgentNotifications: Sendable {
    /// The kind of a notification, by its name in `?filter=`.
    enum Kind: String, CaseIterable {
        case decision, track
        case configUpdate = "project_config_update"
    }

    /// The format of a client's notifications.
    struct Format: Sendable {
        let kinds: Set<Kind>
        /// Whether lines of JSON are sent in place of server-sent events.
        let isRaw: Bool

        /// Returns a notification as it is written to the stream.
        func encode(_ json: [UInt8]) -> [UInt8] {
            isRaw ? json + Array("\n".utf8) : Array("data: ".utf8) + json + Array("\n\n".utf8)
        }
    }

    /// An open stream, and the notifications that its client wants.
    private struct Listener {
        weak var stream: ChangeStream?
        let sdkKey: String
        let format: Format
    }

    private let listeners = Mutex<[Listener]>([])
    /// Whether there may be a listener. Without one, a decision need not lock ``listeners``.
    private let hasListeners = Atomic(false)

    /// Adds a listener. It is removed after its stream was closed.
    func add(_ stream: ChangeStream, sdkKey: String, _ format: Format) {
        listeners.withLock { $0.append(Listener(stream: stream, sdkKey: sdkKey, format: format)) }
        hasListeners.store(true, ordering: .relaxed)
    }

    /// Sends a notification to the listeners of a project. The notifications of one event loop stay in order.
    func send(_ kind: Kind, of project: Project, _ write: (inout JSONWriter) -> Void) {
        guard hasListeners.load(ordering: .relaxed) else { return }
        let found = listeners.withLock { listeners -> [(ChangeStream, Format)] in
            listeners.removeAll { $0.stream == nil }
            hasListeners.store(!listeners.isEmpty, ordering: .relaxed)
            return listeners.compactMap { listener in
                guard listener.sdkKey == project.sdkKey, listener.format.kinds.contains(kind) else { return nil }
                return listener.stream.map { ($0, listener.format) }
            }
        }
        guard !found.isEmpty else { return }
        var writer = JSONWriter()
        write(&writer)
        let json = writer.finish()
        for (stream, format) in found { stream.add(format.encode(json)) }
    }
}

/// `GET /v1/notifications/event-stream`: decisions, goals and new datafiles of a project as they occur. Like those of
/// the Agent, the notifications are about this process only. `?filter=` excludes a kind, and `?raw` requests lines of
/// JSON.
struct AgentNotificationsEndpoint {
    let notifications: AgentNotifications
    let feed: ChangeFeed
    let projects: ProjectView

    func get(_ request: borrowing Request, _ call: Call) throws -> Response {
        let input = try AgentRequest(request, call, projects)
        let excluded = input.query.values("filter").compactMap { AgentNotifications.Kind(rawValue: $0) }
        let format = AgentNotifications.Format(
            kinds: Set(AgentNotifications.Kind.allCases).subtracting(excluded), isRaw: input.query.value("raw") != nil)
        let project = input.project
        // Like the Agent, does not notify of the datafile that is active at the beginning.
        let stream = try feed.open(sdkKey: project.sdkKey, for: call.access, knownVersion: project.version) {
            ChangeStream($0, .agent(format), call.admission)
        }
        notifications.add(stream, sdkKey: project.sdkKey, format)
        return Response(changes: stream)
    }
}

// MARK: - The notifications, whose members have the names of the Agent's Go structs

extension AgentNotifications.Format {
    /// Returns the notification of a new datafile; empty if the client excludes this kind.
    func event(_ project: Project) -> [UInt8] {
        guard kinds.contains(.configUpdate) else { return [] }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("Type", AgentNotifications.Kind.configUpdate.rawValue)
        writer.member("Revision", project.datafile.revision)
        writer.endObject()
        return encode(writer.finish())
    }
}

extension AgentNotifications {
    /// Sends the decisions of `/v1/decide`.
    func send(_ decisions: Decisions, to query: DecisionQuery) {
        guard hasListeners.load(ordering: .relaxed) else { return }
        let datafile = decisions.project.datafile
        for decision in decisions.flags {
            // As in the SDKs: the decision of a targeted rollout, or a decision without a variation, is dispatched only
            // if the datafile has `sendFlagDecisions`.
            let isDispatched =
                !query.options.contains(.disableDecisionEvent)
                && (datafile.sendsFlagDecisions || decision.ruleType != .rollout && decision.variation != nil)
            send(.decision, of: decisions.project) { writer in
                writer.decision("flag", by: query.user) { writer in
                    writer.member("decisionEventDispatched", isDispatched)
                    writer.member("enabled", decision.isEnabled)
                    writer.member("flagKey", decision.flagKey.string)
                    writer.member("reasons", decision.reasons)
                    writer.member("ruleKey", decision.ruleKey?.string ?? "")
                    writer.values("variables", decision.variables)
                    writer.member("variationKey", decision.variation?.key.string ?? "")
                }
            }
        }
    }

    /// Sends the decisions of `/v1/activate`. An experiment without a variation is not a decision.
    func send(activated decisions: Decisions, of user: User) {
        guard hasListeners.load(ordering: .relaxed) else { return }
        for decision in decisions.experiments {
            guard let variation = decision.variation else { continue }
            send(.decision, of: decisions.project) { writer in
                writer.decision("ab-test", by: user) { writer in
                    writer.member("experimentKey", decision.experiment.key.string)
                    writer.member("variationKey", variation.key.string)
                }
            }
        }
        for decision in decisions.flags {
            send(.decision, of: decisions.project) { writer in
                writer.decision("all-feature-variables", by: user) { writer in
                    writer.key("feature")
                    writer.beginObject()
                    writer.member("featureEnabled", decision.isEnabled)
                    writer.member("featureKey", decision.flagKey.string)
                    writer.member("source", decision.ruleType.rawValue)
                    writer.key("sourceInfo")
                    writer.beginObject()
                    if decision.ruleType == .featureTest, let variation = decision.variation {
                        writer.member("experimentKey", decision.ruleKey?.string ?? "")
                        writer.member("variationKey", variation.key.string)
                    }
                    writer.endObject()
                    writer.values("variableValues", decision.variables)
                    writer.endObject()
                }
            }
        }
    }

    /// Sends a goal of `/v1/track`.
    ///
    /// - Parameter event: the event of the datafile. Like the Agent, this server does not notify of other events.
    func send(_ event: Event, by user: User, tags: JSONObject, in project: Project) {
        send(.track, of: project) { writer in
            writer.beginObject()
            writer.member("EventKey", event.key.string)
            writer.userContext(user)
            writer.key("EventTags")
            writer.agentObject(tags)
            writer.key("ConversionEvent")
            writer.beginObject()
            writer.member("entity_id", event.id.string)
            writer.member("key", event.key.string)
            writer.key("Attributes")
            writer.beginArray()
            for attribute in project.datafile.attributes {
                guard let value = user.attributes[attribute.key.string] else { continue }
                writer.beginObject()
                writer.key("value")
                writer.agentValue(value)
                writer.member("key", attribute.key.string)
                writer.member("type", "custom")
                writer.member("entity_id", attribute.id.string)
                writer.endObject()
            }
            writer.endArray()
            if !tags.isEmpty {
                writer.key("tags")
                writer.agentObject(tags)
            }
            for name: StaticString in ["revenue", "value"] {
                guard let value = tags["\(name)"], value.double != nil else { continue }
                writer.key(name)
                writer.agentValue(value)
            }
            writer.endObject()
            writer.endObject()
        }
    }
}

extension JSONWriter {
    /// Writes a notification about a decision.
    ///
    /// - Parameter content: writes the members of `DecisionInfo`.
    fileprivate mutating func decision(_ type: String, by user: User, _ content: (inout JSONWriter) -> Void) {
        beginObject()
        member("Type", type)
        userContext(user)
        key("DecisionInfo")
        beginObject()
        content(&self)
        endObject()
        endObject()
    }

    fileprivate mutating func userContext(_ user: User) {
        key("UserContext")
        beginObject()
        member("ID", user.id.string)
        key("Attributes")
        agentObject(user.attributes)
        key("QualifiedSegments")
        null()
        endObject()
    }

    fileprivate mutating func values(_ name: StaticString, _ variables: [VariableValue]) {
        key(name)
        beginObject()
        for variable in variables {
            key(text: variable.key.string)
            agentValue(variable.value)
        }
        endObject()
    }
}
