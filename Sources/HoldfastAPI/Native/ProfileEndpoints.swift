import Bucketing
import HTTPServer
import HoldfastCore
import Storage

/// `/v1/profiles/{user_id}`: one user's profile.
struct ProfileEndpoints {
    let store: any ProfileStore
    let events: EventQueue
    let knownExposures: KnownExposures
    let catalog: ProjectCatalog

    /// The profile; 404 if there is none. `?detail=true` adds to each entry where it came from.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let detail = try Request.flag("detail", request.query(knowing: ["detail"]))
        store.profile(of: userID) { result in
            switch result {
            case .success(let profile?): Self.send(userID, profile, detail: detail, to: call)
            case .success(nil): call.fail(CoreError(.notFound, "the user has no profile"))
            case .failure(let error): call.fail(error)
            }
        }
    }

    private static func send(_ userID: Identifier, _ profile: ProfileRecord, detail: Bool, to call: Call) {
        let json = ProfileJSON.encode(userID, profile, detail: detail)
        call.respond(json: json, entityTag: EntityTag(of: json))
    }

    /// `If-Match` and `If-None-Match` of a change; they may name the profile with or without detail.
    private static func condition(_ request: borrowing Request, of userID: Identifier) -> ProfileChange.Condition? {
        Preconditions(request).condition { profile in
            guard let profile else { return [] }
            return [false, true].map { EntityTag(of: ProfileJSON.encode(userID, profile, detail: $0)) }
        }
    }

    /// Replaces the profile; 201 if there was none.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let body = try request.profileBody()
        let change = ProfileChange(
            userID: body.userID, operation: .replace(body.assignments),
            condition: Self.condition(request, of: body.userID))
        submit(change, call) { result in result.existed ? .ok : .created }
    }

    /// Merges into the profile; with `?on_conflict=keep` what is stored wins.
    func patch(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
        let body = try request.profileBody()
        let change = ProfileChange(
            userID: body.userID, operation: .merge(body.assignments, onConflict: rule),
            condition: Self.condition(request, of: body.userID))
        submit(change, call) { _ in .ok }
    }

    /// Erases all that is stored of the user, after what is on its way to the store.
    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let change = ProfileChange(
            userID: userID, operation: .erase, condition: Self.condition(request, of: userID))
        let author = call.author(request)
        // Safe: used on the event loop only.
        nonisolated(unsafe) let store = store
        events.afterWaiting { [knownExposures, catalog] in
            call.onEventLoop {
                store.submit(change, by: author) { result in
                    knownExposures.removeAll()
                    if case .failure(let error) = result { return call.fail(error) }
                    // Nor does this process decide by an override of the user any longer.
                    catalog.respond(call, .noContent, nil)
                }
            }
        } ifOverloaded: {
            call.fail($0)
        }
    }

    /// Answers with the profile as it is after the change.
    private func submit(
        _ change: ProfileChange, _ call: Call, status: @escaping @Sendable (ProfileChangeResult) -> Status
    ) {
        store.submit(change) { result in
            switch result {
            case .success(let result):
                call.respond(status(result), json: ProfileJSON.encode(change.userID, result.profile))
            case .failure(let error):
                call.fail(error)
            }
        }
    }
}

extension Request {
    /// The body as a profile of the user that the path names.
    fileprivate func profileBody() throws(CoreError) -> ProfileInput {
        let userID = try userID()
        return try withBody { bytes throws(CoreError) in try ProfileInput(bytes, pathUserID: userID) }
    }
}
