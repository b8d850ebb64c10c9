/// Hits: the first time that a user sees a group is reported to the server and to the app's analytics.
extension SplitTestService {
    /// Reports a hit, unless the user's hit of this group was reported before, in any run.
    ///
    /// - Parameter handleUser: the user to whom the handle was given.
    func hit(_ definition: SplitTestDefinition, _ handleUser: SplitTestUser, _ group: String) {
        let user = reportedUser(of: handleUser, definition)
        let hitKey = groups.hitKey(definition, user)
        // The storage's lock is not held during the report, because analytics may use this service.
        guard state.withLock({ $0.hits.insert(hitKey).inserted }) else { return }
        defer { state.withLock { _ = $0.hits.remove(hitKey) } }
        let reported = storing.withLock { _ in try? groups.storage.string(forKey: hitKey) }
        guard reported != group else { return }
        if let client {
            // If the event cannot be queued, the next hit tries again.
            guard client.reportExposure(experiment: definition.identifier, variationKey: group, userID: user.id) else {
                return
            }
        }
        analytics?.setOnce(value: group, for: definition.analyticsKey)
        storing.withLock { _ in try? groups.storage.set(group, forKey: hitKey) }
    }

    /// Returns the user for whom a hit is reported. This is the user of the handle. If that is an anonymous user who
    /// has logged in since, it is the account.
    private func reportedUser(of handleUser: SplitTestUser, _ definition: SplitTestDefinition) -> SplitTestUser {
        let current = user
        guard case .account(_, let anonymousID?) = current, anonymousID.hasSameBytes(as: handleUser.id) else {
            return handleUser
        }
        // Reading the group copies the anonymous user's group and hit to the account.
        _ = storing.withLock { _ in try? groups.group(of: definition, for: current) }
        return current
    }
}
