/// What the service needs to know of a test's type.
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

/// The groups that a user has in the storage.
struct KeptGroups: Sendable {
    struct Group {
        var group: String
        /// Whether it was drawn on the device.
        var isLocal: Bool
    }

    let storage: any SplitTestStorage
    /// Tells users apart whose groups are in one storage.
    let keySuffix: String

    private static let serverMark = "server"

    func key(of test: SplitTestDefinition) -> String { test.storageKey + keySuffix }

    /// A group without a mark was stored by another library of this format, which draws on the device.
    func group(of test: SplitTestDefinition) throws -> Group? {
        guard let group = try storage.string(forKey: key(of: test)), test.isGroup(group) else { return nil }
        return Group(group: group, isLocal: try storage.string(forKey: key(of: test) + ".source") != Self.serverMark)
    }

    func keep(_ group: String?, isLocal: Bool, of test: SplitTestDefinition) throws {
        // The mark first: alone it has no effect.
        try storage.set(group == nil || isLocal ? nil : Self.serverMark, forKey: key(of: test) + ".source")
        try storage.set(group, forKey: key(of: test))
    }
}
