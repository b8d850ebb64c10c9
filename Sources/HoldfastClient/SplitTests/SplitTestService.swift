import Foundation

/// Assigns one user to the groups of split tests and reports hits, with or without a server.
///
/// ```swift
/// let tests = SplitTestService(client: client, storage: UserDefaultsSplitTestStorage(), analytics: analytics)
/// let test = await tests.fetchSplitTest(ButtonColorTest.self)
/// button.color = test.group.color
/// test.hit()
/// ```
///
/// The first fetch of a test in a run asks the server, which gives a user the same group on all devices. If the server does
/// not respond within the time limit the group of the storage is used, and if there is none, one is drawn, with equal
/// chances. A drawn group is kept: the hit reports it to the server, which keeps it for a user who has no group there. Until
/// the server has it, only an admin's override replaces a drawn group that the user has seen.
///
/// The user is the client's: the anonymous one until a login, then the account, which keeps the group that the anonymous
/// user was shown unless the server has another one for it. After ``HoldfastClient/logout(attributes:timeout:)`` the next
/// user begins anew.
///
/// Concurrent fetches of a test share one assignment. A change of the experiment on the server, such as a pause, another
/// user, and a server that can be reached again refresh the tests if the client is initialized with a user; see
/// ``refreshAll()`` and ``addUpdateListener(_:)``.
public final class SplitTestService: SplitTestServiceProtocol {
    private struct Assignment: Equatable {
        /// `nil` for a user who is not enrolled.
        var group: String?
        var source: SplitTestSource
        var error: SplitTestError?
    }

    private struct Known {
        var definition: SplitTestDefinition
        var userID: Key
        var assignment: Assignment
    }

    /// A group of the server.
    private struct ServerGroup {
        /// `nil` for a user who is not enrolled.
        var group: String?
        /// Source of the server's decision.
        var source: String

        /// - Parameter drawn: a group that was drawn on the device.
        func replaces(drawn: String, wasHit: Bool) -> Bool {
            switch source {
            case "override", "whitelist", "forced": true
            case "stored": group == drawn || !wasHit
            default: false
            }
        }
    }

    private struct FetchID: Hashable {
        var test: String
        var userID: Key
    }

    private struct State {
        /// By identifier of the test.
        var known: [String: Known] = [:]
        var fetches: [FetchID: Task<Assignment, Never>] = [:]
        /// Identifiers of tests for which ``splitTest(_:)`` has returned the fallback, because nothing was known.
        var fallbacks: Set<String> = []
        /// Storage keys of hits that are being reported.
        var hits: Set<String> = []
    }

    private let client: HoldfastClient?
    private let currentUser: @Sendable () -> SplitTestUser
    private let attributes: [String: UserAttributeValue]?
    private let groups: KeptGroups
    private let analytics: (any SplitTestAnalytics)?
    private let timeLimit: Duration
    private let draw: @Sendable (_ count: Int) -> Int
    private let state = Locked(State())
    /// Serializes all use of the storage.
    private let storing = Locked(())
    private let listeners = Listeners<Set<String>>()
    /// The observers that the service has registered with the client.
    private let registrations = OwnedTokens()

    /// - Parameters:
    ///   - client: asks the server and reports exposures to it; `nil` for tests without a server.
    ///   - userID: the user of the tests. By default the client's current user, also after it changes; without a client
    ///     an anonymous id, which is kept in the storage. The groups of an anonymous user are stored with the keys of
    ///     the tests; for any other user, the id is appended to the keys.
    ///   - attributes: the user's attributes, which audiences use. By default those of the client's current user, if
    ///     that is the same user.
    ///   - timeLimit: how long a fetch waits for the server.
    ///   - draw: returns a random number from 0 up to, but not including, its argument.
    public init(
        client: HoldfastClient?, userID: String? = nil, attributes: [String: UserAttributeValue]? = nil,
        storage: any SplitTestStorage, analytics: (any SplitTestAnalytics)? = nil, timeLimit: Duration = .seconds(2),
        draw: @escaping @Sendable (_ count: Int) -> Int = { Int.random(in: 0..<$0) }
    ) {
        self.client = client
        self.attributes = attributes
        groups = KeptGroups(storage: storage)
        self.analytics = analytics
        self.timeLimit = timeLimit
        self.draw = draw
        if let userID {
            currentUser = { .given(id: userID) }
        } else if let client {
            currentUser = { Self.user(of: client) }
        } else {
            let id = Self.anonymousID(storage)
            currentUser = { .only(id: id) }
        }
        guard let client else { return }
        registrations.add(client.flags.observeRevisions { [weak self] in Task { await self?.refreshAll() } })
        registrations.add(
            client.flags.observeFetches { [weak self] error in
                if error == nil { Task { await self?.refreshUnavailable() } }
            })
        if userID == nil {
            registrations.add(client.flags.observeUsers { [weak self] in Task { await self?.refreshAll() } })
        }
    }

    /// The user whose groups these are: with a client and no id of its own, the client's current user.
    public var userID: String { user.id }

    private var user: SplitTestUser { currentUser() }

    private static func user(of client: HoldfastClient) -> SplitTestUser {
        let anonymousID = client.anonymousUserID
        guard let id = client.currentUser?.id, !id.hasSameBytes(as: anonymousID) else {
            return .anonymous(id: anonymousID)
        }
        return .account(id: id, anonymousID: client.core.anonymousID(loggedInAs: id))
    }

    private static let anonymousKey = "split_test_anonymous_id"

    private static func anonymousID(_ storage: any SplitTestStorage) -> String {
        let new = UUID().uuidString.lowercased()
        do {
            if let id = try storage.string(forKey: anonymousKey) { return id }
            try storage.set(new, forKey: anonymousKey)
        } catch {
            // Use the new id for this run only, because the storage may have one that it cannot read at the moment.
        }
        return new
    }

    // MARK: Groups

    public func fetchSplitTest<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test> {
        let (definition, user) = (SplitTestDefinition(test), user)
        if let known = known(definition, user) { return handle(test, definition, user, known) }
        return handle(test, definition, user, await assignment(definition, user))
    }

    private func known(_ definition: SplitTestDefinition, _ user: SplitTestUser) -> Assignment? {
        state.withLock { state in
            let known = state.known[definition.identifier]
            return known?.userID == Key(user.id) ? known?.assignment : nil
        }
    }

    public func keptSplitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test>? {
        let (definition, user) = (SplitTestDefinition(test), user)
        if let known = known(definition, user) { return handle(test, definition, user, known) }
        guard let kept = try? storing.withLock({ _ in try groups.group(of: definition, for: user) }) else { return nil }
        return handle(test, definition, user, Assignment(group: kept.group, source: kept.isLocal ? .local : .kept))
    }

    /// Returns the user's group in a test at once, for a view that cannot wait. Without a client, a group is drawn and
    /// kept if there is none. With a client, the server decides who is enrolled: if the device has no group yet, the
    /// test is fetched in the background, and the user is not enrolled until then; see ``addUpdateListener(_:)``.
    public func splitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test> {
        if let kept = keptSplitTest(test) { return kept }
        let (definition, user) = (SplitTestDefinition(test), user)
        guard client == nil else {
            state.withLock { _ = $0.fallbacks.insert(definition.identifier) }
            Task { await assignment(definition, user) }
            return handle(test, definition, user, Assignment(source: .none))
        }
        let drawn = decided(definition, user, nil)
        remember(drawn, definition, Key(user.id))
        return handle(test, definition, user, drawn)
    }

    /// Asks the server again for the group of a test, as the first fetch of a run does.
    @discardableResult
    public func refresh<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test> {
        let (definition, user) = (SplitTestDefinition(test), user)
        return handle(test, definition, user, await refresh(definition, user))
    }

    /// Asks the server again for the groups of all tests that were fetched in this run.
    public func refreshAll() async {
        await refresh { _ in true }
    }

    /// Asks again for the groups for which the server was unavailable.
    private func refreshUnavailable() async {
        await refresh { assignment in if case .unavailable = assignment.error { true } else { false } }
    }

    private func refresh(where isWanted: (Assignment) -> Bool) async {
        let user = user
        let definitions = state.withLock { $0.known.values.filter { isWanted($0.assignment) }.map(\.definition) }
        await withTaskGroup(of: Void.self) { group in
            for definition in definitions { group.addTask { _ = await self.refresh(definition, user) } }
        }
    }

    /// Calls a function with the identifiers of tests in which the user's group has changed.
    @discardableResult
    public func addUpdateListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    private func handle<Test: SplitTest>(
        _ test: Test.Type, _ definition: SplitTestDefinition, _ user: SplitTestUser, _ assignment: Assignment
    ) -> SplitTestHandle<Test> {
        guard let name = assignment.group, let group = Test.Group(rawValue: name) else {
            return SplitTestHandle(group: Test.fallbackGroup, source: .none, error: assignment.error)
        }
        // If this anonymous user logs in, the account keeps the group.
        if case .anonymous(let id) = user { client?.core.noteAnonymousUse(of: id) }
        return SplitTestHandle(group: group, source: assignment.source, error: assignment.error) { [self] in
            hit(definition, user, name)
        }
    }

    private func refresh(_ definition: SplitTestDefinition, _ user: SplitTestUser) async -> Assignment {
        // A running fetch may have asked the server before the change, so its result does not count.
        let id = FetchID(test: definition.identifier, userID: Key(user.id))
        if let running = state.withLock({ $0.fetches[id] }) { _ = await running.value }
        return await assignment(definition, user)
    }

    /// Asks the server for a group. Concurrent calls for the same test and user share one request.
    private func assignment(_ definition: SplitTestDefinition, _ user: SplitTestUser) async -> Assignment {
        let id = FetchID(test: definition.identifier, userID: Key(user.id))
        let task = state.withLock { state in
            if let task = state.fetches[id] { return task }
            let task = Task {
                let assignment = await assign(definition, user)
                finish(definition, id, assignment)
                return assignment
            }
            state.fetches[id] = task
            return task
        }
        return await task.value
    }

    private func finish(_ definition: SplitTestDefinition, _ id: FetchID, _ assignment: Assignment) {
        if let error = assignment.error {
            client?.core.log(
                .warning, "a split test has no group from the server",
                ["test": definition.identifier, "error": error.localizedDescription])
        }
        state.withLock { $0.fetches[id] = nil }
        remember(assignment, definition, id.userID)
    }

    /// Remembers an assignment for this run.
    private func remember(_ assignment: Assignment, _ definition: SplitTestDefinition, _ owner: Key) {
        // The user may have changed since the request.
        let isPresent = Key(userID) == owner
        let hasChanged = state.withLock { state in
            guard isPresent else { return false }
            let former = state.known[definition.identifier]?.assignment
            // A test whose storage failed is tried again by the next fetch.
            if case .storage = assignment.error {
                state.known[definition.identifier] = nil
            } else {
                state.known[definition.identifier] = Known(
                    definition: definition, userID: owner, assignment: assignment)
            }
            // A view may show the fallback of a test that was not known before.
            let showsFallback = state.fallbacks.remove(definition.identifier) != nil
            return former.map { $0.group != assignment.group } ?? (showsFallback && assignment.group != nil)
        }
        if hasChanged { listeners.notify([definition.identifier]) }
    }

    private func assign(_ definition: SplitTestDefinition, _ user: SplitTestUser) async -> Assignment {
        decided(definition, user, await askServer(definition, user))
    }

    private func decided(
        _ definition: SplitTestDefinition, _ user: SplitTestUser, _ response: Result<ServerGroup, SplitTestError>?
    ) -> Assignment {
        storing.withLock { _ in
            do {
                return try decide(definition, user, response)
            } catch {
                return Assignment(source: .none, error: .storage(reason: "\(error)"))
            }
        }
    }

    /// - Returns: `nil` without a server.
    private func askServer(
        _ definition: SplitTestDefinition, _ user: SplitTestUser
    ) async -> Result<ServerGroup, SplitTestError>? {
        guard let client else { return nil }
        // A drawn group stays: the server is only asked whether the test runs, and stores no assignment.
        let isDrawn = storing.withLock { _ in (try? groups.group(of: definition, for: user))?.isLocal == true }
        let user = evaluated(user, client)
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
            let key = assignment.source == "holdout" ? nil : assignment.variationKey
            if let key, !definition.isGroup(key) { return .failure(.unknownGroup(key)) }
            return .success(ServerGroup(group: key, source: assignment.source))
        case .failure(let error)?:
            switch error {
            case .refused, .unauthorized, .unknownProject, .invalidArgument: return .failure(.refused(error))
            default: return .failure(.unavailable(error))
            }
        case nil:
            return .failure(.unavailable(.timedOut))
        }
    }

    private func evaluated(_ user: SplitTestUser, _ client: HoldfastClient) -> HoldfastUser {
        if let attributes { return HoldfastUser(id: user.id, attributes: attributes) }
        if let current = client.currentUser, current.id.hasSameBytes(as: user.id) { return current }
        return HoldfastUser(id: user.id)
    }

    private func decide(
        _ definition: SplitTestDefinition, _ user: SplitTestUser, _ response: Result<ServerGroup, SplitTestError>?
    ) throws -> Assignment {
        let kept = try groups.group(of: definition, for: user)
        var failure: SplitTestError?
        switch response {
        case .success(let server)?:
            guard let group = server.group else {
                // The test may be paused and continue later, and a drawn group is known on this device only, so keep
                // it.
                if kept?.isLocal != true { try groups.keep(nil, isLocal: false, of: definition, for: user) }
                return Assignment(source: .none)
            }
            if let kept, kept.isLocal {
                let wasHit = try groups.storage.string(forKey: groups.hitKey(definition, user)) == kept.group
                guard server.replaces(drawn: kept.group, wasHit: wasHit) else {
                    return Assignment(group: kept.group, source: .local)
                }
            }
            if kept?.group != group || kept?.isLocal == true {
                try groups.keep(group, isLocal: false, of: definition, for: user)
            }
            return Assignment(group: group, source: .server)
        case .failure(let error)?:
            failure = error
        case nil:
            break
        }
        if let kept { return Assignment(group: kept.group, source: kept.isLocal ? .local : .kept, error: failure) }
        switch failure {
        case .refused?, .unknownGroup?:
            // The server would refuse the hit of a group that is drawn here.
            return Assignment(source: .none, error: failure)
        default:
            break
        }
        guard !definition.groups.isEmpty else { return Assignment(source: .none, error: failure) }
        let group = definition.groups[draw(definition.groups.count)]
        try groups.keep(group, isLocal: true, of: definition, for: user)
        return Assignment(group: group, source: .local, error: failure)
    }

    // MARK: Hits

    private func hit(_ definition: SplitTestDefinition, _ handled: SplitTestUser, _ group: String) {
        var user = user
        if case .account(_, let anonymousID?) = user, anonymousID.hasSameBytes(as: handled.id) {
            // The user has logged in since. Reading the group copies the anonymous user's group and hit to the account.
            _ = storing.withLock { _ in try? groups.group(of: definition, for: user) }
        } else {
            user = handled
        }
        let hitKey = groups.hitKey(definition, user)
        // Not inside the storage's lock: analytics may use this service.
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
}
