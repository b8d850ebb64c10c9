/// What an assigner is asked: which group of a test is a user's?
public struct SplitTestRequest: Sendable {
    public let userID: String
    public let testKey: String

    /// The raw values of all groups of the test, in the order in which they are declared.
    public let groups: [String]

    /// What is kept of an earlier answer; nil if nothing is, or if it is none of the groups any more.
    public internal(set) var kept: SplitTestAssignment?

    public init(userID: String, testKey: String, groups: [String], kept: SplitTestAssignment? = nil) {
        self.userID = userID
        self.testKey = testKey
        self.groups = groups
        self.kept = kept
    }

    var storageKey: String {
        SplitTestRecord.storageKey(userID: userID, testKey: testKey)
    }
}
