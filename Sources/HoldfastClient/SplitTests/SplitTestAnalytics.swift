/// The app's own analytics, which want to know of exposures.
///
/// ```swift
/// struct Analytics: SplitTestAnalytics {
///     func userWasExposed(_ exposure: SplitTestExposure) async {
///         await tracker.setUserProperty(exposure.testKey, exposure.assignment.variationKey)
///     }
/// }
/// ```
public protocol SplitTestAnalytics: Sendable {
    /// Told once for each user and assignment, over all runs of the app, at the moment of the first hit. A process
    /// killed in that moment may leave it untold; it is never told twice.
    func userWasExposed(_ exposure: SplitTestExposure) async

    /// Holdfast's reporter could not take the exposure. It is tried again at the next hit, and the analytics are told
    /// of the exposure then.
    func exposureWasNotReported(_ exposure: SplitTestExposure, error: SplitTestError) async
}

extension SplitTestAnalytics {
    public func exposureWasNotReported(_ exposure: SplitTestExposure, error: SplitTestError) async {}
}
