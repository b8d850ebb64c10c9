import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/ups/lookup` and `/ups/save`: the User Profile Service, by which SDKs and the `rest` service of Optimizely Agent
/// load and save profiles. They send `POST` with a body, or `GET` with a query. Unknown query parameters are ignored,
/// because the Agent passes those of the path in its configuration.
struct UserProfileServiceProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let userProfileService = UserProfileServiceEndpoints(store: loop.session)
        routes = [
            APIRoute(
                .post, "/ups/lookup", scope: .profile(.read), readsQuery: true, callback: userProfileService.postLookup),
            APIRoute(
                .get, "/ups/lookup", scope: .profile(.read), readsQuery: true, callback: userProfileService.getLookup),
            APIRoute(
                .post, "/ups/save", scope: .profile(.write), readsQuery: true, callback: userProfileService.postSave),
            APIRoute(
                .get, "/ups/save", scope: .profile(.write), changesState: true, readsQuery: true,
                callback: userProfileService.getSave),
        ].map(\.atEdge)
    }
}

/// The handlers of the four routes. They respond by callbacks, without the cost of a task.
private struct UserProfileServiceEndpoints {
    let store: any StoreSession

    /// `POST /ups/lookup` with the body `{"user_id"}`.
    func postLookup(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try respondWithProfile(of: try request.withBody { bytes throws(CoreError) in try Self.userID(bytes) }, call)
    }

    /// `GET /ups/lookup?user_id=`
    func getLookup(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try respondWithProfile(of: try Self.userID(try request.lenientQuery()), call)
    }

    /// `POST /ups/save` with a profile as the body.
    func postSave(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let rule = try Request.conflictRule(request.lenientQuery())
        try save(try request.withBody { bytes throws(CoreError) in try ProfileInput(bytes) }, rule, call)
    }

    /// `GET /ups/save?user_id=&experiment_bucket_map=`, with the map as JSON.
    func getSave(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let query = try request.lenientQuery()
        let rule = try Request.conflictRule(query)
        let userID = try Self.userID(query)
        guard let text = query["experiment_bucket_map"] else {
            throw CoreError(.invalid, "the query parameter `experiment_bucket_map` is required")
        }
        let map = try JSONInput.parse(parameter: "experiment_bucket_map", text)
        try save(ProfileInput(userID: userID, assignments: try ProfileInput.assignments(map)), rule, call)
    }

    /// Responds with the profile of a user, which has an empty map if nothing is stored.
    private func respondWithProfile(of userID: Identifier, _ call: Call) throws(CoreError) {
        try call.checkProfile(of: userID)
        store.profile(of: userID) { result in call.respond(result) { .json(ProfileJSON.encode(userID, $0)) } }
    }

    /// Merges the assignments into the profile, and responds with the result.
    private func save(_ body: ProfileInput, _ rule: ProfileChange.ConflictRule, _ call: Call) throws(CoreError) {
        try call.checkProfile(of: body.userID)
        store.submit(body.change(onConflict: rule)) { result in
            call.respond(result) { .json(ProfileJSON.encode(body.userID, $0.profile)) }
        }
    }

    /// Reads the user id of a body.
    private static func userID(_ bytes: UnsafeRawBufferPointer) throws(CoreError) -> Identifier {
        let value = try JSONInput.parse(bytes)
        guard let object = value.object else {
            throw CoreError(.invalid, "a lookup must be an object; got \(value.kind)", at: [])
        }
        guard let member = object["user_id"] else {
            throw CoreError(.invalid, "`user_id` is required", at: ["user_id"])
        }
        guard let text = member.string else {
            throw CoreError(.invalid, "`user_id` must be a string; got \(member.kind)", at: ["user_id"])
        }
        return try ProfileInput.checkUserID(text, at: ["user_id"])
    }

    /// Reads the user id of a query.
    private static func userID(_ query: [String: String]) throws(CoreError) -> Identifier {
        guard let text = query["user_id"] else {
            throw CoreError(.invalid, "the query parameter `user_id` is required")
        }
        return try ProfileInput.checkUserID(text, at: ["user_id"])
    }
}

extension Request {
    /// Returns the first value of each query parameter. Unlike ``query(knowing:)``, accepts unknown parameters:
    /// the Agent passes those of the path in its configuration.
    fileprivate func lenientQuery() throws(CoreError) -> [String: String] {
        guard hasQuery else { return [:] }
        guard let items = queryItems() else { throw CoreError(.invalid, "the query must be UTF-8") }
        return Dictionary(items.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
    }
}
