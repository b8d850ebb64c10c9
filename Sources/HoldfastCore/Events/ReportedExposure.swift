public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// An exposure that a client reports by ids, after it has decided itself as Optimizely's SDKs do. The experiment need
/// not be in any datafile of this server: a team may use the server for profiles only, and upload the datafile later.
public struct ReportedExposure {
    public let userID: Identifier
    public let happenedAt: Instant
    public let experimentID: Identifier
    /// The key that the client sends; `nil` to use the id.
    public let experimentKey: Identifier?
    /// The id of the variation; `nil` if the client sends only the key.
    public let variationID: Identifier?
    public let variationKey: Identifier?
    /// The details to store with the exposure, as a JSON object.
    public let payload: [UInt8]

    public init(
        userID: Identifier, happenedAt: Instant, experimentID: Identifier, experimentKey: Identifier?,
        variationID: Identifier?, variationKey: Identifier?, payload: [UInt8]
    ) {
        self.userID = userID
        self.happenedAt = happenedAt
        self.experimentID = experimentID
        self.experimentKey = experimentKey
        self.variationID = variationID
        self.variationKey = variationKey
        self.payload = payload
    }

    /// Returns the exposure to record.
    ///
    /// - Parameters:
    ///   - projects: the projects that the exposure may belong to. It belongs to the first one that has the experiment.
    ///   - place: the place of the decision in the body.
    /// - Throws: 422 if the experiment does not have the variation, or if an id is too long.
    public func exposure(in projects: [Project], at place: JSONPointer) throws(CoreError) -> Exposure {
        let project = projects.first { $0.measured(id: experimentID) != nil }
        let experiment = project?.measured(id: experimentID)
        guard let variationID = variationID ?? variationKey.flatMap({ experiment?.variation(key: $0)?.id }) else {
            throw CoreError(
                .unprocessable, "`variation_id` is required, or else the key of a variation of a known experiment",
                at: place.appending("variation_id"), mayBeStale: experiment == nil)
        }
        for (name, id) in [("experiment_id", experimentID), ("variation_id", variationID)]
        where !EventInput.isName(id.string, limit: 255) {
            throw CoreError(
                .unprocessable, "`\(name)` must be 1 to 255 bytes long, without NUL; got \(id.string.utf8.count) bytes",
                at: place.appending(name))
        }
        var isChosen = false
        if let project, let experiment {
            let held = DecisionService(datafile: project.datafile)
                .heldVariation(of: experiment, for: userID, stored: StickyAssignments(nil, userID, project))
            isChosen = held?.source.isChosen ?? false
        }
        let reportedKey = experimentKey.flatMap { EventInput.isName($0.string, limit: 255) ? $0 : nil }
        return Exposure(
            userID: userID, experimentID: experimentID, experimentKey: experiment?.key ?? reportedKey ?? experimentID,
            variationID: variationID, happenedAt: happenedAt, isChosen: isChosen,
            sdkKey: project?.sdkKey ?? (projects.count == 1 ? projects[0].sdkKey : ""), payload: payload,
            active: project?.allocation(experimentID: experimentID),
            enrollsWith: project?.enrollingVersion(experimentID: experimentID, variationID: variationID))
    }
}
