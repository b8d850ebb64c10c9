/// Gives a user a group. ``HoldfastSplitTestAssigner`` asks the server, ``RandomSplitTestAssigner`` draws.
public protocol SplitTestAssigner: Sendable {
    /// Gets the group the user has, or assigns one.
    /// - Returns: nil if the user is not part of the test.
    /// - Throws: ``SplitTestError``
    func assignment(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestAssignment?
}

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

/// The group a user was given, as an assigner tells it and a storage keeps it.
public struct SplitTestAssignment: Sendable, Hashable, Codable {
    /// The raw value of the group.
    public let variationKey: String

    /// The variation's id in the datafile; nil for a group assigned without a server.
    public let variationID: String?

    public init(variationKey: String, variationID: String? = nil) {
        self.variationKey = variationKey
        self.variationID = variationID
    }
}

/// Asks a Holdfast server for groups. The server gives a user one group for good, the same on all the user's devices.
public struct HoldfastSplitTestAssigner: SplitTestAssigner {
    private let client: HoldfastClient
    private let attributes: [String: UserAttributeValue]?

    /// - Parameter attributes: what the audiences of experiments ask for; nil for those of the client's current user, if
    ///   that is the user of the test.
    public init(client: HoldfastClient, attributes: [String: UserAttributeValue]? = nil) {
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
        case .invalidArgument(let reason), .invalidResponse(let reason): self = .refused(testKey: testKey, reason: reason)
        default: self = .unavailable(reason: "\(error)")
        }
    }
}

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

/// Takes exposures for Holdfast.
public protocol ExposureReporter: Sendable {
    /// Takes one exposure into a queue that survives the process. Taking one that was taken before changes nothing.
    /// - Throws: ``SplitTestError`` if it could not be taken; the next hit reports it again.
    func report(_ exposure: SplitTestExposure) async throws(SplitTestError)
}

/// Reports exposures to a Holdfast server through the client's durable queue. The server counts the first exposure of a
/// user to an experiment, so that one which a killed process sends again does no harm.
public struct HoldfastExposureReporter: ExposureReporter {
    private let client: HoldfastClient

    public init(client: HoldfastClient) {
        self.client = client
    }

    /// - Throws: ``SplitTestError/storage(reason:)`` when the queue is full or cannot be written.
    public func report(_ exposure: SplitTestExposure) async throws(SplitTestError) {
        let isKept = client.reportExposure(
            experiment: exposure.testKey, variationID: exposure.assignment.variationID, userID: exposure.userID)
        if !isKept { throw .storage(reason: "the exposure could not be kept; the client's deliveries tell why") }
    }
}
