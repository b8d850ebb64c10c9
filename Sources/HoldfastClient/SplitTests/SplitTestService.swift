import Foundation

// The fetches of assignments are in `SplitTestService+Assigning.swift`, the hits in `SplitTestService+Hits.swift`.

/// Assigns one user to the groups of split tests and reports hits, with or without a server.
///
/// ```swift
/// let tests = SplitTestService(client: client, storage: UserDefaultsSplitTestStorage(), analytics: analytics)
/// let test = await tests.fetchSplitTest(ButtonColorTest.self)
/// button.color = test.group.color
/// test.hit()
/// ```
///
/// The first fetch of a test in a run asks the server, which gives a user the same group on all devices. If the server
/// does not respond within the time limit, the user gets the group of the storage. If the storage has none, a group is
/// drawn with equal chances, and kept. The hit reports a drawn group to the server, which keeps it for a user who has
/// no group there. Until the server has the group, only an override of an administrator replaces a drawn group that the
/// user has seen.
///
/// The user is the client's user: the anonymous user until a login, then the account. The account keeps the group that
/// the anonymous user was shown, unless the server has another group for the account. After
/// ``HoldfastClient/logout(attributes:timeout:)`` the next user begins anew.
///
/// Concurrent fetches of a test share one assignment. If the client is initialized with a user, tests are refreshed
/// when an experiment changes on the server, when the user changes, and when the server can be reached again; see
/// ``refreshAll()`` and ``addUpdateListener(_:)``.
public final class SplitTestService: SplitTestServiceProtocol {
    /// The user's group in a test, as a fetch or the storage has it.
    struct Assignment: Equatable {
        /// `nil` for a user who is not enrolled.
        var group: String?
        var source: SplitTestSource
        var error: SplitTestError?
    }

    /// An assignment of this run.
    struct KnownAssignment {
        var definition: SplitTestDefinition
        var userID: Key
        var assignment: Assignment
    }

    /// Identifies a fetch in progress.
    struct FetchID: Hashable {
        var test: String
        var userID: Key
    }

    struct State {
        /// The assignments of this run, by identifier of the test. They are of the user at the time of the fetch.
        var known: [String: KnownAssignment] = [:]
        var fetches: [FetchID: Task<Assignment, Never>] = [:]
        /// Identifiers of tests for which ``splitTest(_:)`` has returned the fallback, because nothing was known.
        var fallbacks: Set<String> = []
        /// Storage keys of hits that are being reported.
        var hits: Set<String> = []
    }

    /// Asks the server and reports exposures to it; `nil` for tests without a server.
    let client: HoldfastClient?
    /// Returns the user of the tests, who may change.
    private let currentUser: @Sendable () -> SplitTestUser
    /// The attributes that the app has given; `nil` for the attributes of the client's current user.
    let attributes: [String: UserAttributeValue]?
    /// The groups in the storage. It is used only inside ``storing``.
    let groups: KeptGroups
    /// The app's analytics, which get the first hits; `nil` if the app has none.
    let analytics: (any SplitTestAnalytics)?
    /// How long a fetch waits for the server.
    let timeLimit: Duration
    /// Returns a random number from 0 up to, but not including, its argument.
    let draw: @Sendable (_ count: Int) -> Int
    let state = Locked(State())
    /// Serializes all use of the storage.
    let storing = Locked(())
    /// Listeners for changed groups, with the identifiers of the tests.
    let listeners = Listeners<Set<String>>()
    /// The observers that the service has registered with the client.
    private let registrations = OwnedTokens()

    /// - Parameters:
    ///   - client: asks the server and reports exposures to it; `nil` for tests without a server.
    ///   - userID: the user of the tests. By default this is the client's current user, even after the user changes. If
    ///     there is no client, it is by default an anonymous id, which is kept in the storage. The groups of an
    ///     anonymous user are stored under the keys of the tests. For any other user, the id is appended to the keys.
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

    /// The id of the user of the tests: the given user, or else the client's current user.
    public var userID: String { user.id }

    /// The user of the tests at the moment.
    var user: SplitTestUser { currentUser() }

    /// Returns the client's current user; the anonymous user before there is one.
    private static func user(of client: HoldfastClient) -> SplitTestUser {
        let anonymousID = client.anonymousUserID
        guard let id = client.currentUser?.id, !id.hasSameBytes(as: anonymousID) else {
            return .anonymous(id: anonymousID)
        }
        return .account(id: id, anonymousID: client.core.anonymousID(loggedInAs: id))
    }

    private static let anonymousKey = "split_test_anonymous_id"

    /// Returns the anonymous id of a storage without a client, which is made at the first use.
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

    /// Returns the user's group in a test. The first call of a run asks the server.
    public func fetchSplitTest<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test> {
        let definition = SplitTestDefinition(test)
        let user = user
        if let known = known(definition, user) { return handle(test, definition, user, known) }
        return handle(test, definition, user, await fetch(definition, user))
    }

    /// Returns the assignment of this run; `nil` if there is none, or if it is of another user.
    private func known(_ definition: SplitTestDefinition, _ user: SplitTestUser) -> Assignment? {
        state.withLock { state in
            let known = state.known[definition.identifier]
            return known?.userID == Key(user.id) ? known?.assignment : nil
        }
    }

    /// Returns the user's group in a test, from this run or from the storage, without waiting; `nil` if there is none.
    public func keptSplitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test>? {
        let definition = SplitTestDefinition(test)
        let user = user
        if let known = known(definition, user) { return handle(test, definition, user, known) }
        guard let kept = try? storing.withLock({ _ in try groups.group(of: definition, for: user) }) else { return nil }
        return handle(test, definition, user, Assignment(group: kept.group, source: kept.isLocal ? .local : .kept))
    }

    /// Returns the user's group in a test at once, for a view that cannot wait. Without a client, a group is drawn and
    /// kept if there is none. With a client, the server decides who is enrolled: if the device has no group yet, the
    /// test is fetched in the background, and the user is not enrolled until then; see ``addUpdateListener(_:)``.
    public func splitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test> {
        if let kept = keptSplitTest(test) { return kept }
        let definition = SplitTestDefinition(test)
        let user = user
        guard client == nil else {
            state.withLock { _ = $0.fallbacks.insert(definition.identifier) }
            Task { await fetch(definition, user) }
            return handle(test, definition, user, Assignment(source: .none))
        }
        let drawn = decide(definition, user, serverResult: nil)
        remember(drawn, definition, Key(user.id))
        return handle(test, definition, user, drawn)
    }

    /// Asks the server again for the group of a test, as the first fetch of a run does.
    @discardableResult
    public func refresh<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test> {
        let definition = SplitTestDefinition(test)
        let user = user
        return handle(test, definition, user, await refetch(definition, user))
    }

    /// Asks the server again for the groups of all tests that were fetched in this run.
    public func refreshAll() async {
        await refetchKnown { _ in true }
    }

    /// Asks again for the groups for which the server was unavailable.
    private func refreshUnavailable() async {
        await refetchKnown { assignment in if case .unavailable = assignment.error { true } else { false } }
    }

    /// Asks the server again for the groups of this run that a function selects.
    private func refetchKnown(where isSelected: (Assignment) -> Bool) async {
        let user = user
        let definitions = state.withLock { state in
            state.known.values.filter { isSelected($0.assignment) }.map(\.definition)
        }
        await withTaskGroup(of: Void.self) { group in
            for definition in definitions { group.addTask { _ = await self.refetch(definition, user) } }
        }
    }

    /// Calls a function with the identifiers of tests in which the user's group has changed.
    @discardableResult
    public func addUpdateListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    /// Returns what the app gets for an assignment. A group that the test does not declare counts as none.
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
}
