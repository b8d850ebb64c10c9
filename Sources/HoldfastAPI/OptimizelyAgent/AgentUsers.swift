import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/lookup` and `POST /v1/save`: profiles in the format of the Agent.
///
/// The Agent replaces the stored profile by the saved one. Here a save merges into the profile, and a save without a
/// map is refused, so that a server cannot delete the assignments of another server.
struct AgentProfileEndpoints {
    let store: any StoreSession

    /// `POST /v1/lookup`
    func load(_ request: AgentRequest) async throws -> AgentResponse {
        let userID = try request.body.userID()
        return Self.response(userID, try await completed { store.profile(of: userID, $0) })
    }

    /// `POST /v1/save`
    func save(_ request: AgentRequest) async throws -> AgentResponse {
        let map = try request.body.object("experimentBucketMap")
        let userID = try request.body.userID()
        guard let map else { throw AgentError(.badRequest, "missing \"experimentBucketMap\" in request payload") }
        let profile = ProfileInput(userID: userID, assignments: try Self.assignments(map))
        let change = profile.change(onConflict: .replace)
        _ = try await completed { store.submit(change, $0) }
        return AgentResponse(.ok)
    }

    private static func response(_ userID: Identifier, _ profile: ProfileRecord?) -> AgentResponse {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("userId", userID.string)
        writer.key("experimentBucketMap")
        writer.beginObject()
        if let profile {
            for entry in profile.entries {
                writer.key(text: profile.experimentID(of: entry).string)
                writer.beginObject()
                writer.member("variation_id", profile.variationID(of: entry).string)
                writer.endObject()
            }
        }
        writer.endObject()
        writer.endObject()
        return AgentResponse(.ok, writer)
    }

    private static func assignments(_ map: JSONObject) throws(AgentError) -> ExperimentBucketMap {
        do throws(CoreError) {
            return try ProfileInput.assignments(.object(map), at: ["experimentBucketMap"])
        } catch {
            let place = error.pointer.map { "\($0.string): " } ?? ""
            throw AgentError(error.kind.status, place + error.detail)
        }
    }
}

/// `POST /v1/override`: forces a variation on a user for a test, or ends a forced variation, in all processes that use
/// the store. The profile does not change.
struct OverrideEndpoint {
    let store: any StoreSession
    let catalog: ProjectCatalog

    /// Stores the override, and responds when this process uses it.
    func post(_ request: AgentRequest) async throws -> AgentResponse {
        let override = try OverrideRequest(request.body)
        let warning = override.warning(in: request.project.datafile)
        // Another server may have just defined the experiment or the variation.
        guard request.isUpToDate || warning == nil else { throw AgentError.undefined }
        let former = try await store.write(
            .forceVariation(
                override.variationKey, experimentKey: override.experimentKey, userID: override.userID,
                sdkKey: request.project.sdkKey, by: request.caller.author))
        try await catalog.refresh()
        return override.response(former, warning)
    }
}

/// The request of `POST /v1/override`.
private struct OverrideRequest: Sendable {
    let userID: Identifier
    let experimentKey: Identifier
    /// The variation to force; `nil` to end the override.
    let variationKey: Identifier?

    init(_ body: AgentBody) throws(AgentError) {
        // All members are read before any is checked, as the Agent decodes the body first.
        let user = try body.text("userId")
        let experiment = try body.text("experimentKey")
        let variation = try body.text("variationKey")
        guard !user.isEmpty else { throw AgentError(.badRequest, "userId cannot be empty") }
        guard !experiment.isEmpty else { throw AgentError(.badRequest, "experimentKey cannot be empty") }
        userID = try AgentBody.check(userID: user)
        experimentKey = Identifier(experiment)
        variationKey = variation.isEmpty ? nil : Identifier(variation)
    }

    /// Returns a warning if the datafile lacks the experiment or the variation. The override is stored in any case, for
    /// a later datafile.
    func warning(in datafile: Datafile) -> String? {
        guard let variationKey else { return nil }
        guard let experiment = datafile.agentExperiment(key: experimentKey) else {
            return "experimentKey not found in configuration"
        }
        return experiment.variation(key: variationKey) == nil ? "variationKey not found in configuration" : nil
    }

    /// Returns the response, with the messages of the Agent.
    ///
    /// - Parameters:
    ///   - former: the variation that was forced before; `nil` if none was.
    ///   - warning: see ``warning(in:)``.
    func response(_ former: Identifier?, _ warning: String?) -> AgentResponse {
        var messages: [String] = []
        if variationKey == nil {
            messages.append(former == nil ? "no pre-existing override" : "removing previous override")
        } else {
            if let warning { messages.append(warning) }
            if former != nil { messages.append("updating previous override") }
        }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("userId", userID.string)
        writer.member("experimentKey", experimentKey.string)
        writer.member("variationKey", variationKey?.string ?? "")
        writer.member("prevVariationKey", former?.string ?? "")
        if messages.isEmpty {
            writer.key("messages")
            writer.null()
        } else {
            writer.member("messages", messages)
        }
        writer.endObject()
        return AgentResponse(.ok, writer)
    }
}
