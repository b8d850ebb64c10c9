import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/profiles/{user_id}`: one user's profile.
struct ProfileEndpoints {
    let store: any StoreSession
    let events: EventQueue
    let knownExposures: KnownExposures
    let catalog: ProjectCatalog
    let merger: ProfileMerger

    // MARK: Reading

    /// Responds with the profile; 404 if there is none. With `?detail=true` each assignment has its source and times;
    /// an override also has its reason and author.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let detail = try Request.flag("detail", request.query(knowing: ["detail"]))
        try call.checkProfile(of: userID)
        guard !detail || call.mayNameAnyUser else {
            throw CoreError(.forbidden, "`detail` requires the scope read, because it names admins")
        }
        store.profile(of: userID) { result in
            call.respond(result) { profile in
                guard let profile else {
                    return Problem(CoreError(.notFound, "the user has no profile")).response(on: call.pattern)
                }
                let json = ProfileJSON.encode(userID, profile, detail: detail)
                return .json(json, entityTag: EntityTag(of: json))
            }
        }
    }

    // MARK: Writing

    /// Returns the condition of `If-Match` and `If-None-Match`. The entity tag may come from a response with or without
    /// `?detail=true`.
    private static func condition(_ request: borrowing Request, of userID: Identifier) -> ProfileChange.Condition? {
        Preconditions(request).condition { profile in
            guard let profile else { return [] }
            return [false, true].map { EntityTag(of: ProfileJSON.encode(userID, profile, detail: $0)) }
        }
    }

    /// Replaces the profile; 201 if there was none. Need not call ``Call/checkProfile(of:)``, because the route
    /// requires the scope `write`, which may name any user.
    func put(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let body = try request.profileBody()
        let change = ProfileChange(
            userID: body.userID, operation: .replace(body.assignments),
            condition: Self.condition(request, of: body.userID))
        submit(change, call) { result in result.existed ? .ok : .created }
    }

    /// Merges the body into the profile; with `?on_conflict=keep` stored assignments win.
    func patch(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
        let body = try request.profileBody()
        try call.checkProfile(of: body.userID)
        submit(body.change(onConflict: rule, if: Self.condition(request, of: body.userID)), call) { _ in .ok }
    }

    /// Makes a change, and responds with the profile after it.
    private func submit(
        _ change: ProfileChange, _ call: Call, status: @escaping @Sendable (ProfileChangeResult) -> Status
    ) {
        store.submit(change) { result in
            call.respond(result) { .json(ProfileJSON.encode(change.userID, $0.profile), status($0)) }
        }
    }

    // MARK: Merging

    /// Merges an anonymous user into this one, after the queued events of both are stored. Responds with the profile.
    func merge(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let merge = try request.withBody { bytes throws(CoreError) in
            try Self.merge(into: userID, JSONInput.parse(bytes))
        }
        try await merger.waitForQueuedEvents()
        let result = try await merger.merge(merge, by: call.author(request))
        if result.changed { try await merger.refresh() }
        return .json(ProfileJSON.encode(userID, result.profile))
    }

    /// Reads the body of a merge: `{"from","on_conflict"?}`.
    private static func merge(into userID: Identifier, _ value: JSONValue) throws(CoreError) -> ProfileMerge {
        let object = try value.object("a merge", knowing: ["from", "on_conflict"])
        let anonymousID = try ProfileInput.checkUserID(try object.text("from"), at: ["from"])
        guard anonymousID != userID else {
            throw CoreError(
                .invalid, "`from` must be another user than the one in the path; got '\(anonymousID)'", at: ["from"])
        }
        let rule = try object.optionalText("on_conflict")
        switch rule {
        case nil, "keep": return ProfileMerge(userID: userID, anonymousID: anonymousID, conflictRule: .keep)
        case "replace": return ProfileMerge(userID: userID, anonymousID: anonymousID, conflictRule: .replace)
        case let text?:
            throw CoreError(.invalid, "`on_conflict` must be 'keep' or 'replace'; got '\(text)'", at: ["on_conflict"])
        }
    }

    // MARK: Erasing

    /// Erases everything that is stored about the user. First waits until the queued events are stored, because an
    /// event that is stored after the erasure would record the user again. Responds with the number of erased records
    /// of each kind; 404 if there were none. With `?keep_totals=true`, the totals of results still include the user.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let keepsTotals = try Request.flag("keep_totals", request.query(knowing: ["keep_totals"]))
        let change = ProfileChange(
            userID: userID, operation: keepsTotals ? .eraseKeepingTotals : .erase,
            condition: Self.condition(request, of: userID))
        let author = call.author(request)
        try await events.waitForEarlier()
        let result = await settled { store.submit(change, by: author, $0) }
        // Later exposures of the same user must be recorded again. This holds after an error, too: the store may have
        // erased the user nevertheless.
        knownExposures.forget([ErasureRules.hash(userID)])
        let erased = try result.get().erased ?? ErasedRecords()
        // The catalog of this process may still have a forced variation of the user.
        try await catalog.refresh()
        let whitelists = try await WhitelistEraser(catalog).erase(userID, by: author)
        guard !erased.isEmpty || !whitelists.isEmpty else { throw Self.unknown }
        return .json(Self.describe(erased, whitelists, of: userID))
    }

    static let unknown = CoreError(.notFound, "nothing is stored about the user")

    /// Returns the numbers of erased records, and the SDK keys of the projects from whose whitelists the user was
    /// removed.
    private static func describe(
        _ erased: ErasedRecords, _ whitelists: [String], of userID: Identifier
    ) -> JSONValue {
        func number(_ count: Int) -> JSONValue { .integer(Int64(count)) }
        return [
            "user_id": .string(userID.string),
            "erased": [
                "profiles": number(erased.profiles), "assignments": number(erased.assignments),
                "attributes": number(erased.attributes), "forced_variations": number(erased.forcedVariations),
                "exposures": number(erased.exposures), "goal_events": number(erased.goalEvents),
                "sticky_documents": number(erased.stickyDocuments), "audit_entries": number(erased.auditEntries),
            ],
            // Former datafiles of these projects, which are kept, still name the user.
            "whitelists": .array(whitelists.map { .string($0) }),
        ]
    }
}

extension Request {
    /// The body as a profile of the user that the path names.
    fileprivate func profileBody() throws(CoreError) -> ProfileInput {
        let userID = try userID()
        return try withBody { bytes throws(CoreError) in try ProfileInput(bytes, pathUserID: userID) }
    }
}
