/// That a user met a test for the first time.
public struct SplitTestExposure: Sendable, Hashable {
    public let userID: String
    public let testKey: String
    public let assignment: SplitTestAssignment

    public init(userID: String, testKey: String, assignment: SplitTestAssignment) {
        self.userID = userID
        self.testKey = testKey
        self.assignment = assignment
    }
}
