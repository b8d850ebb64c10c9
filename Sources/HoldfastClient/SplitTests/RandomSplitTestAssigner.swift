/// Draws a group at random, each with the same chance, for an app without a server. That the user stays in the group is
/// the doing of the ``SplitTestStorage``.
public struct RandomSplitTestAssigner: SplitTestAssigner {
    private let draw: @Sendable (_ count: Int) -> Int

    /// Draws with the system's generator.
    public init() {
        self.init { Int.random(in: 0..<$0) }
    }

    /// - Parameter draw: returns a number from 0 up to but not including the one it is given, each with the same chance.
    public init(draw: @escaping @Sendable (_ count: Int) -> Int) {
        self.draw = draw
    }

    /// What is kept, or else a group drawn from all. Never fails; nil only for a test without groups.
    public func assignment(for request: SplitTestRequest) async -> SplitTestAssignment? {
        if let kept = request.kept { return kept }
        guard !request.groups.isEmpty else { return nil }
        return SplitTestAssignment(variationKey: request.groups[draw(request.groups.count)])
    }
}
