/// Gives a user a group. ``HoldfastSplitTestAssigner`` asks the server, ``RandomSplitTestAssigner`` draws.
public protocol SplitTestAssigner: Sendable {
    /// Gets the group the user has, or assigns one.
    /// - Returns: nil if the user is not part of the test.
    /// - Throws: ``SplitTestError``
    func assignment(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestAssignment?
}
