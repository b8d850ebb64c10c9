/// The properties of a test's type, without the type: the service keeps tests of different types in one dictionary.
struct SplitTestDefinition {
    let identifier: String
    let storageKey: String
    let analyticsKey: String
    /// The groups that new users may get.
    let groups: [String]
    /// Whether the test declares a group, retired groups included.
    let isGroup: @Sendable (String) -> Bool

    init<Test: SplitTest>(_ test: Test.Type) {
        identifier = Test.identifier
        storageKey = Test.storageKey
        analyticsKey = Test.analyticsKey
        groups = Test.Group.testGroups.map(\.rawValue)
        isGroup = { Test.Group(rawValue: $0)?.rawValue.hasSameBytes(as: $0) == true }
    }
}

/// The user whose groups are read or kept. The cases differ in the keys under which the storage has the groups.
enum SplitTestUser: Sendable {
    /// The user that an app has given to the service.
    case given(id: String)
    /// The only user of a storage, without a client.
    case only(id: String)
    /// The client's user before a login. The next anonymous user has the same keys.
    case anonymous(id: String)
    /// The client's user after a login, who takes over the groups of the anonymous user.
    ///
    /// - Parameter anonymousID: the anonymous user who has logged in as this user; `nil` if that is not known.
    case account(id: String, anonymousID: String?)

    var id: String {
        switch self {
        case .given(let id), .only(let id), .anonymous(let id), .account(let id, _): id
        }
    }

    /// The end of the keys of a user, which distinguishes users in the same storage.
    var keySuffix: String {
        switch self {
        case .given(let id), .account(let id, _): "-\(id)"
        case .only, .anonymous: ""
        }
    }
}

/// The groups of users in the storage.
///
/// | key | value |
/// | --- | --- |
/// | `split_test_database-TEST` and the user's suffix | the group |
/// | the same with `.source` | `server` if the server has assigned the group |
/// | the same with `.hit` | the group whose hit was reported |
/// | `split_test_database-TEST.user` | the anonymous user whose group it is |
struct KeptGroups: Sendable {
    struct Group {
        /// The name of the group.
        var group: String
        /// Whether it was drawn on the device.
        var isLocal: Bool
    }

    let storage: any SplitTestStorage

    /// The value under the key with ``sourceSuffix`` if the server has assigned the group.
    private static let serverMark = "server"
    /// The suffix of the key with the owner of a group. Anonymous users share all other keys.
    private static let ownerSuffix = ".user"
    /// The suffix of the key with the source of a group.
    private static let sourceSuffix = ".source"
    /// The suffix of the key with the group whose hit was reported.
    private static let hitSuffix = ".hit"

    /// Returns the key of a user's group.
    private func key(_ test: SplitTestDefinition, _ user: SplitTestUser) -> String { test.storageKey + user.keySuffix }

    /// Returns the group of a user. At the first read after a login the account takes over the anonymous user's group.
    func group(of test: SplitTestDefinition, for user: SplitTestUser) throws -> Group? {
        if case .anonymous(let id) = user { return try sharedGroup(of: test, owners: [id]) }
        let key = key(test, user)
        if let own = try read(key, test) { return own }
        guard case .account(let id, let anonymousID) = user,
            let former = try sharedGroup(of: test, owners: [id] + [anonymousID].compactMap(\.self))
        else { return nil }
        try storage.set(storage.string(forKey: test.storageKey + Self.hitSuffix), forKey: key + Self.hitSuffix)
        try keep(former.group, isLocal: former.isLocal, of: test, for: user)
        return former
    }

    /// Returns the group of an anonymous user, if the user is one of the owners. A group without a known user is
    /// assigned to the first owner.
    private func sharedGroup(of test: SplitTestDefinition, owners: [String]) throws -> Group? {
        let key = test.storageKey
        guard let group = try read(key, test) else { return nil }
        guard let owner = try storage.string(forKey: key + Self.ownerSuffix) else {
            // Another library has stored the group, for the first user of the app.
            try storage.set(owners.first, forKey: key + Self.ownerSuffix)
            return group
        }
        return owners.contains { $0.hasSameBytes(as: owner) } ? group : nil
    }

    /// Returns the group under a key; `nil` if there is none, or if the test does not declare it.
    ///
    /// A group without a source counts as drawn on the device. Another library, which uses the same keys and draws on
    /// the device, has stored it.
    private func read(_ key: String, _ test: SplitTestDefinition) throws -> Group? {
        guard let group = try storage.string(forKey: key), test.isGroup(group) else { return nil }
        return Group(group: group, isLocal: try storage.string(forKey: key + Self.sourceSuffix) != Self.serverMark)
    }

    /// Stores the group of a user, or removes it with `nil`.
    ///
    /// - Parameter isLocal: whether the group was drawn on the device.
    func keep(_ group: String?, isLocal: Bool, of test: SplitTestDefinition, for user: SplitTestUser) throws {
        let key = key(test, user)
        if case .anonymous(let id) = user,
            try storage.string(forKey: key + Self.ownerSuffix)?.hasSameBytes(as: id) != true
        {
            // The keys still have the group of the former anonymous user.
            try storage.set(nil, forKey: key)
            try storage.set(nil, forKey: key + Self.hitSuffix)
            try storage.set(id, forKey: key + Self.ownerSuffix)
        }
        // The mark is written first, because a mark without a group has no effect.
        try storage.set(group == nil || isLocal ? nil : Self.serverMark, forKey: key + Self.sourceSuffix)
        try storage.set(group, forKey: key)
    }

    /// Returns the key of the group whose hit was reported.
    func hitKey(_ test: SplitTestDefinition, _ user: SplitTestUser) -> String { key(test, user) + Self.hitSuffix }
}
