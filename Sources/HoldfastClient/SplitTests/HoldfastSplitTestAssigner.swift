/// Asks a Holdfast server for groups. The server gives a user one group for good, the same on all the user's devices.
public struct HoldfastSplitTestAssigner: SplitTestAssigner {
    private let client: HoldfastClient
    private let attributes: [String: AttributeValue]?

    /// - Parameter attributes: what the audiences of experiments ask for; nil for those of the client's current user, if
    ///   that is the user of the test.
    public init(client: HoldfastClient, attributes: [String: AttributeValue]? = nil) {
        self.client = client
        self.attributes = attributes
    }

    /// - Returns: nil for a user who is not in the audience or the traffic of the experiment, or is held out of it.
    public func assignment(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestAssignment? {
        let answer: ExperimentAssignment
        do throws(HoldfastError) {
            answer = try await client.assignment(experiment: request.testKey, user: user(request.userID))
        } catch {
            throw SplitTestError(error, testKey: request.testKey)
        }
        guard answer.source != "holdout", let variationKey = answer.variationKey else { return nil }
        return SplitTestAssignment(variationKey: variationKey, variationID: answer.variationID)
    }

    private func user(_ id: String) -> HoldfastUser {
        if let attributes { return HoldfastUser(id: id, attributes: attributes) }
        if let current = client.currentUser, current.id.hasSameBytes(as: id) { return current }
        return HoldfastUser(id: id)
    }
}

extension SplitTestError {
    fileprivate init(_ error: HoldfastError, testKey: String) {
        switch error {
        case .refused(_, let detail, _): self = .refused(testKey: testKey, reason: detail)
        case .invalidArgument(let reason), .invalidAnswer(let reason): self = .refused(testKey: testKey, reason: reason)
        default: self = .unavailable(reason: "\(error)")
        }
    }
}
