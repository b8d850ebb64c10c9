import Bucketing
import HTTPServer
import JSON
import Storage

/// `POST /v1/lookup` and `POST /v1/save`: profiles as the Agent's clients read and write them. Unlike the Agent's,
/// a save merges, and one without the map is refused: so no server takes another's assignments away.
struct AgentProfileEndpoints {
    let store: any ProfileStore
    let reader: any ProfileReader

    func lookUp(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) throws(AgentError) {
        let userID = try request.body.userID()
        reader.profile(of: userID) { result in
            switch result {
            case .success(let profile): receiver(Self.answer(userID, profile))
            case .failure(let error): receiver(AgentError(error).answer)
            }
        }
    }

    private static func answer(_ userID: Identifier, _ profile: ProfileRecord?) -> AgentAnswer {
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
        return AgentAnswer(.ok, writer)
    }

    func save(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) throws(AgentError) {
        let map = try request.body.object("experimentBucketMap")
        let userID = try request.body.userID()
        guard let map else { throw AgentError(.badRequest, "missing \"experimentBucketMap\" in request payload") }
        let change = ProfileChange(userID: userID, operation: .merge(try Self.assignments(map), onConflict: .replace))
        store.submit(change) { result in
            switch result {
            case .success: receiver(AgentAnswer(.ok))
            case .failure(let error): receiver(AgentError(error).answer)
            }
        }
    }

    private static func assignments(_ map: JSONObject) throws(AgentError) -> ExperimentBucketMap {
        do throws(Problem) {
            return try ProfileBody.assignments(.object(map), at: ["experimentBucketMap"])
        } catch {
            let place = error.pointer.map { "\($0.string): " } ?? ""
            throw AgentError(error.status, place + error.detail)
        }
    }
}
