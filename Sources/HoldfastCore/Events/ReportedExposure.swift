public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// An exposure that a client reports by ids, after it has made the decision itself, as Optimizely's SDKs do.
///
/// The experiment need not be in any datafile of this server: a team may use the server for profiles only, and upload
/// the datafile later.
public struct ReportedExposure {
    public let userID: Identifier
    public let happenedAt: Instant
    public let experimentID: Identifier
    /// The key of the experiment that the client sends, if any.
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
    ///   - projects: the projects that the exposure may belong to. It belongs to the first project that has the
    ///     experiment. If none has it, it belongs to the only project, if there is just one.
    ///   - place: the location of the decision in the body, for errors.
    /// - Throws: 422 if the client sends no id of the variation and the key is unknown, or if an id is empty, too long
    ///   or contains NUL.
    public func exposure(in projects: [Project], at place: JSONPointer) throws(CoreError) -> Exposure {
        let project = projects.first { $0.measured(id: experimentID) != nil }
        let experiment = project?.measured(id: experimentID)
        guard let variationID = variationID ?? variationKey.flatMap({ experiment?.variation(key: $0)?.id }) else {
            throw CoreError(
                .unprocessable, "`variation_id` is required, or else the key of a variation of a known experiment",
                at: place.appending("variation_id"), mayBeStale: experiment == nil)
        }
        try Self.checkID(experimentID, "experiment_id", at: place)
        try Self.checkID(variationID, "variation_id", at: place)
        let fallbackSDKKey = projects.count == 1 ? projects[0].sdkKey : ""
        return Exposure(
            userID: userID, experimentID: experimentID,
            experimentKey: experiment?.key ?? usableExperimentKey ?? experimentID, variationID: variationID,
            happenedAt: happenedAt, isChosen: isChosen(in: project, experiment),
            sdkKey: project?.sdkKey ?? fallbackSDKKey, payload: payload,
            active: project?.allocation(experimentID: experimentID),
            enrollsWith: project?.enrollingVersion(experimentID: experimentID, variationID: variationID))
    }

    /// - Throws: 422 if an id is empty, too long or contains NUL.
    private static func checkID(_ id: Identifier, _ name: String, at place: JSONPointer) throws(CoreError) {
        let limit = EventInput.referenceLimit
        guard EventInput.isName(id.string, limit: limit) else {
            throw CoreError(
                .unprocessable,
                "`\(name)` must be 1 to \(limit) bytes long, without NUL; got \(id.string.utf8.count) bytes",
                at: place.appending(name))
        }
    }

    /// The reported key of the experiment; `nil` if the key cannot be stored. The exposure is then stored with the id
    /// in place of the key, so that it is not lost.
    private var usableExperimentKey: Identifier? {
        guard let experimentKey, EventInput.isName(experimentKey.string, limit: EventInput.referenceLimit) else {
            return nil
        }
        return experimentKey
    }

    /// Whether the datafile or an admin has chosen the user's variation, so that results exclude the user. An override
    /// in the profile is not read here; the store excludes the user because of it.
    private func isChosen(in project: Project?, _ experiment: Experiment?) -> Bool {
        guard let project, let experiment else { return false }
        let held = DecisionService(datafile: project.datafile)
            .heldVariation(of: experiment, for: userID, stored: StickyAssignments(nil, userID, project))
        return held?.source.isChosen ?? false
    }
}
