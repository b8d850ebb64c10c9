import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/logins`: an app reports that its anonymous user has logged in, which merges the anonymous user into the
/// account.
///
/// This route is safe for tokens of scope `client`, which anyone can read in an app, unlike the merge of any two users
/// (``ProfileEndpoints/merge(_:_:)``). It accepts only anonymous ids that nobody can guess (``TakeoverRules``), and
/// does not change existing assignments of the account. The response reveals nothing about the profile.
struct LoginEndpoint {
    let merger: ProfileMerger
    /// The maximum number of logins in an array.
    let limit: Int

    /// Merges the users of one login or of an array of them. Responds when all are durable. In an array each login has
    /// its own result.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let list = try ReportList(request, limit: limit)
        let logins = try list.parse(Self.merge)
        let author = call.author(request)
        try await merger.waitForQueuedEvents()
        let merged = try await call.map(logins.indices) { index async -> Result<ProfileMergeResult, CoreError> in
            do throws(CoreError) {
                return .success(try await merger.merge(logins[index].get(), by: author))
            } catch {
                return .failure(error)
            }
        }
        if merged.contains(where: { (try? $0.get())?.changed == true }) { try await merger.refresh() }
        return try list.response(merged.map(Self.outcome))
    }

    /// Returns the outcome of a login. An invalid login must not be sent again; one that the store cannot process now
    /// may be.
    private static func outcome(
        _ merged: Result<ProfileMergeResult, CoreError>
    ) -> (id: Identifier?, outcome: Result<ReportList.Status, EventRefusal>) {
        switch merged {
        case .success: (nil, .success(.stored))
        case .failure(let error): (nil, .failure(EventRefusal(error, isRetriable: error.kind == .unavailable)))
        }
    }

    /// Parses `{"user_id","anonymous_id"}`.
    private static func merge(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> ProfileMerge {
        let object = try value.object("a login", knowing: ["user_id", "anonymous_id"], at: place)
        let userID = try ProfileInput.checkUserID(
            try object.text("user_id", in: place), at: place.appending("user_id"))
        let anonymousID = try ProfileInput.checkAnonymousID(
            try object.text("anonymous_id", in: place), at: place.appending("anonymous_id"), mayNameAny: false)
        guard userID != anonymousID else {
            throw CoreError(
                .invalid, "`user_id` must be another user than `anonymous_id`", at: place.appending("user_id"))
        }
        return ProfileMerge(userID: userID, anonymousID: anonymousID, conflictRule: .keep)
    }
}
