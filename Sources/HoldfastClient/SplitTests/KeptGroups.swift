/// The properties of a test's type that the service uses.
struct SplitTestDefinition {
    let identifier: String
    let storageKey: String
    let analyticsKey: String
    let groups: [String]
    let isGroup: @Sendable (String) -> Bool

    init<Test: SplitTest>(_ test: Test.Type) {
        identifier = Test.identifier
        storageKey = Test.storageKey
        analyticsKey = Test.analyticsKey
        groups = Test.Group.testGroups.map(\.rawValue)
        isGroup = { Test.Group(rawValue: $0)?.rawValue.hasSameBytes(as: $0) == true }
    }
}

/// The user whose groups are read or kept.
enum SplitTestUser: Sendable {
    /// The user that an app has given to the service.
    case given(id: String)
    /// The only user of a storage, without a client.
    case only(id: String)
    /// The client's user before a login. The next anonymous user has the same keys.
    case anonymous(id: String)
    /// The client's user after a login, who takes over what the anonymous user of the app was shown before.
    ///
    /// - Parameter anonymousID: the anonymous user who has logged in as this one, if that is known.
    case account(id: String, anonymousID: String?)

    var id: String {
        switch self {
        case .given(let id), .only(let id), .anonymous(let id), .account(let id, _): id
        }
    }

    /// Distinguishes users whose groups are in the same storage.
    var keySuffix: String {
        switch self {
        case .given(let id), .account(let id, _): "-\(id)"
        case .only, .anonymous: ""
        }
    }
}

/// The groups that users have in the storage.
struct KeptGroups: Sendable {
    struct Group {
        var group: String
        /// Whether it was drawn on the device.
        var isLocal: Bool
    }

    let storage: any SplitTestStorage

    private static let serverMark = "server"
    /// The suffix of the key with the owner of a group. Anonymous users share all other keys.
    private static let owner = ".user"
    private static let source = ".source"
    private static let hit = ".hit"

    private func key(_ test: SplitTestDefinition, _ user: SplitTestUser) -> String { test.storageKey + user.keySuffix }

    /// Returns the group that a user has. At the first read after a login the account takes over the anonymous user's.
    ///
    /// A group without a mark was stored by another library of this format, which draws on the device.
    func group(of test: SplitTestDefinition, for user: SplitTestUser) throws -> Group? {
        if case .anonymous(let id) = user { return try sharedGroup(of: test, owners: [id]) }
        let key = key(test, user)
        if let own = try read(key, test) { return own }
        guard case .account(let id, let anonymousID) = user,
            let former = try sharedGroup(of: test, owners: [id] + [anonymousID].compactMap(\.self))
        else { return nil }
        try storage.set(storage.string(forKey: test.storageKey + Self.hit), forKey: key + Self.hit)
        try keep(former.group, isLocal: former.isLocal, of: test, for: user)
        return former
    }

    /// Returns the group of an anonymous user, if the user is one of the owners. A group without a known user is
    /// assigned to the first owner.
    private func sharedGroup(of test: SplitTestDefinition, owners: [String]) throws -> Group? {
        let key = test.storageKey
        guard let group = try read(key, test) else { return nil }
        guard let owner = try storage.string(forKey: key + Self.owner) else {
            // Another library has stored the group, for the first user of the app.
            try storage.set(owners.first, forKey: key + Self.owner)
            return group
        }
        return owners.contains { $0.hasSameBytes(as: owner) } ? group : nil
    }

    private func read(_ key: String, _ test: SplitTestDefinition) throws -> Group? {
        guard let group = try storage.string(forKey: key), test.isGroup(group) else { return nil }
        return Group(group: group, isLocal: try storage.string(forKey: key + Self.source) != Self.serverMark)
    }

    func keep(_ group: String?, isLocal: Bool, of test: SplitTestDefinition, for user: SplitTestUser) throws {
        let key = key(test, user)
        if case .anonymous(let id) = user, try storage.string(forKey: key + Self.owner)?.hasSameBytes(as: id) != true {
            // Removes the group of the former user.
            try storage.set(nil, forKey: key)
            try storage.set(nil, forKey: key + Self.hit)
            try storage.set(id, forKey: key + Self.owner)
        }
        // The mark is written first, because a mark without a group has no effect.
        try storage.set(group == nil || isLocal ? nil : Self.serverMark, forKey: key + Self.source)
        try storage.set(group, forKey: key)
    }

    /// Identifies a user's hits of a test.
    func hitKey(_ test: SplitTestDefinition, _ user: SplitTestUser) -> String { key(test, user) + Self.hit }
}
