import Foundation

/// Assignments: asks the server for a user's group in a test, and decides between the server's group, the kept group
/// and a drawn one.
///
/// | the server | the kept group | the user gets |
/// | --- | --- | --- |
/// | has a group | none, or of the server | the server's group |
/// | has a group | drawn on the device | the drawn group, unless ``ServerGroup/replaces(drawn:wasHit:)`` |
/// | does not enroll the user | | no group; a drawn group is still kept |
/// | failed, or there is no client | any | the kept group |
/// | is unavailable, or there is no client | none | a group that is drawn now |
/// | refused, or has an unknown group | none | no group |
extension SplitTestService {
    /// The server's decision for a user.
    struct ServerGroup {
        /// `nil` for a user who is not enrolled.
        var group: String?
        /// Source of the server's decision.
        var source: String

        /// Whether this group replaces one that was drawn on the device.
        ///
        /// - Parameter wasHit: whether the user has seen the drawn group. The user then keeps it, unless an
        ///   administrator has chosen another one: the hit reports the drawn group to the server, which may not have it
        ///   yet.
        func replaces(drawn: String, wasHit: Bool) -> Bool {
            switch source {
            case "override", "whitelist", "forced": true
            case "stored": group == drawn || !wasHit
            // The server has stored no group for the user, and will keep the drawn one when a hit reports it.
            default: false
            }
        }
    }

    // MARK: Fetching

    /// Asks the server for a group. Concurrent calls for the same test and user share one request.
    func fetch(_ definition: SplitTestDefinition, _ user: SplitTestUser) async -> Assignment {
        let id = FetchID(test: definition.identifier, userID: Key(user.id))
        let task = state.withLock { state in
            if let task = state.fetches[id] { return task }
            let task = Task {
                let assignment = decide(definition, user, serverResult: await askServer(definition, user))
                end(id, definition, assignment)
                return assignment
            }
            state.fetches[id] = task
            return task
        }
        return await task.value
    }

    /// Asks the server after a change.
    func refetch(_ definition: SplitTestDefinition, _ user: SplitTestUser) async -> Assignment {
        // A running fetch may have asked the server before the change, so its result does not count.
        let id = FetchID(test: definition.identifier, userID: Key(user.id))
        if let running = state.withLock({ $0.fetches[id] }) { _ = await running.value }
        return await fetch(definition, user)
    }

    /// Ends a fetch: logs its error, and remembers the assignment.
    private func end(_ id: FetchID, _ definition: SplitTestDefinition, _ assignment: Assignment) {
        if let error = assignment.error {
            client?.core.log(
                .warning, "a split test has no group from the server",
                ["test": definition.identifier, "error": error.localizedDescription])
        }
        state.withLock { $0.fetches[id] = nil }
        remember(assignment, definition, id.userID)
    }

    /// Remembers an assignment for this run, and notifies listeners of a changed group.
    ///
    /// - Parameter userID: the user of the assignment. If that is no longer the current user, nothing is remembered.
    func remember(_ assignment: Assignment, _ definition: SplitTestDefinition, _ userID: Key) {
        let isOfCurrentUser = Key(self.userID) == userID
        let hasChanged = state.withLock { state in
            guard isOfCurrentUser else { return false }
            let former = state.known[definition.identifier]?.assignment
            if case .storage = assignment.error {
                // A test whose storage failed is tried again by the next fetch.
                state.known[definition.identifier] = nil
            } else {
                state.known[definition.identifier] = KnownAssignment(
                    definition: definition, userID: userID, assignment: assignment)
            }
            let showsFallback = state.fallbacks.remove(definition.identifier) != nil
            if let former { return former.group != assignment.group }
            // A view may show the fallback of a test that was not known before.
            return showsFallback && assignment.group != nil
        }
        if hasChanged { listeners.notify([definition.identifier]) }
    }

    // MARK: The server

    /// Asks the server for the user's group, within the time limit.
    ///
    /// - Returns: the server's decision, or why there is none; `nil` without a client.
    private func askServer(
        _ definition: SplitTestDefinition, _ user: SplitTestUser
    ) async -> Result<ServerGroup, SplitTestError>? {
        guard let client else { return nil }
        // A drawn group stays. The server is only asked whether the test runs, and must not store an assignment.
        let isDrawn = storing.withLock { _ in (try? groups.group(of: definition, for: user))?.isLocal == true }
        let user = evaluatedUser(user, client)
        let outcome = await value(within: timeLimit, client.core.clock) {
            () -> Result<ExperimentAssignment, HoldfastError> in
            do throws(HoldfastError) {
                return .success(
                    isDrawn
                        ? try await client.previewAssignment(experiment: definition.identifier, user: user)
                        : try await client.assignment(experiment: definition.identifier, user: user))
            } catch {
                return .failure(error)
            }
        }
        switch outcome {
        case .success(let assignment)?:
            // A user who is held out of experiments is not enrolled.
            let group = assignment.source == "holdout" ? nil : assignment.variationKey
            if let group, !definition.isGroup(group) { return .failure(.unknownGroup(group)) }
            return .success(ServerGroup(group: group, source: assignment.source))
        case .failure(let error)?:
            switch error {
            case .refused, .unauthorized, .unknownProject, .invalidArgument: return .failure(.refused(error))
            default: return .failure(.unavailable(error))
            }
        case nil:
            return .failure(.unavailable(.timedOut))
        }
    }

    /// Returns the user with the attributes for audiences.
    private func evaluatedUser(_ user: SplitTestUser, _ client: HoldfastClient) -> HoldfastUser {
        if let attributes { return HoldfastUser(id: user.id, attributes: attributes) }
        if let current = client.currentUser, current.id.hasSameBytes(as: user.id) { return current }
        return HoldfastUser(id: user.id)
    }

    // MARK: The decision

    /// Decides the user's group, and keeps it in the storage. A user whose group cannot be kept is not enrolled.
    ///
    /// - Parameter serverResult: the server's decision, or why there is none; `nil` without a client.
    func decide(
        _ definition: SplitTestDefinition, _ user: SplitTestUser, serverResult: Result<ServerGroup, SplitTestError>?
    ) -> Assignment {
        storing.withLock { _ in
            do {
                let kept = try groups.group(of: definition, for: user)
                switch serverResult {
                case .success(let serverGroup)?:
                    return try adopt(serverGroup, kept: kept, definition, user)
                case .failure(let error)?:
                    return try decideOnDevice(kept: kept, definition, user, error)
                case nil:
                    return try decideOnDevice(kept: kept, definition, user, nil)
                }
            } catch {
                return Assignment(source: .none, error: .storage(reason: "\(error)"))
            }
        }
    }

    /// Decides with a response of the server.
    private func adopt(
        _ serverGroup: ServerGroup, kept: KeptGroups.Group?, _ definition: SplitTestDefinition, _ user: SplitTestUser
    ) throws -> Assignment {
        let isDrawn = kept?.isLocal == true
        guard let group = serverGroup.group else {
            // The test may be paused and continue later. A drawn group is known on this device only, so it is kept.
            if !isDrawn { try groups.keep(nil, isLocal: false, of: definition, for: user) }
            return Assignment(source: .none)
        }
        if let kept, isDrawn {
            let wasHit = try groups.storage.string(forKey: groups.hitKey(definition, user)) == kept.group
            guard serverGroup.replaces(drawn: kept.group, wasHit: wasHit) else {
                return Assignment(group: kept.group, source: .local)
            }
        }
        if kept?.group != group || isDrawn {
            try groups.keep(group, isLocal: false, of: definition, for: user)
        }
        return Assignment(group: group, source: .server)
    }

    /// Decides without a response of the server: by the kept group, or by drawing one.
    private func decideOnDevice(
        kept: KeptGroups.Group?, _ definition: SplitTestDefinition, _ user: SplitTestUser, _ error: SplitTestError?
    ) throws -> Assignment {
        if let kept { return Assignment(group: kept.group, source: kept.isLocal ? .local : .kept, error: error) }
        switch error {
        case .refused?, .unknownGroup?:
            // The server would refuse the hit of a group that is drawn here.
            return Assignment(source: .none, error: error)
        default:
            break
        }
        guard !definition.groups.isEmpty else { return Assignment(source: .none, error: error) }
        let group = definition.groups[draw(definition.groups.count)]
        try groups.keep(group, isLocal: true, of: definition, for: user)
        return Assignment(group: group, source: .local, error: error)
    }
}
