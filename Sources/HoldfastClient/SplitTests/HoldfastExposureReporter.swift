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
