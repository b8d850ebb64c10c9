/// Takes exposures for Holdfast.
public protocol ExposureReporter: Sendable {
    /// Takes one exposure into a queue that survives the process. Taking one that was taken before changes nothing.
    /// - Throws: ``SplitTestError`` if it could not be taken; the next hit reports it again.
    func report(_ exposure: SplitTestExposure) async throws(SplitTestError)
}
