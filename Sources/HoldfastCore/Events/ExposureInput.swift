public import Bucketing
public import Chronology
import Definitions
import JSON
public import Storage

/// An exposure as a client sends it, with the project, experiment and variation that it names.
///
/// The JSON is `{"user_id","experiment","variation_id"?,"variation_key"?,"timestamp"?,"sdk_key"?}`. At most one of
/// `variation_id` and `variation_key` may be given. Without both, the exposure is one to the user's assigned variation.
public struct ExposureInput {
    public let userID: Identifier
    public let happenedAt: Instant
    public let project: Project
    public let experiment: Experiment
    /// The variation that the event names; `nil` to use the user's assignment.
    private let variation: Variation?
    private let place: JSONPointer

    /// The members of an exposure.
    public static let members = ["user_id", "experiment", "variation_id", "variation_key", "timestamp", "sdk_key"]

    /// Parses an exposure, and looks up its project, experiment and variation.
    ///
    /// - Throws: a refusal with 400, 403, 404 or 422. With 404 it is retriable: the project or the experiment is
    ///   unknown, but may be defined later.
    public init(
        _ body: EventInput, _ projects: ProjectView, for access: ProjectAccess
    ) throws(EventRefusal) {
        place = body.place
        do throws(CoreError) {
            userID = try body.userID()
            happenedAt = try body.happenedAt()
            project = try projects.project(named: try body.sdkKey(), for: access)
            let name = Identifier(try body.object.text("experiment", in: place))
            guard let found = project.datafile.experiment(keyOrID: name) else {
                throw CoreError.undefinedExperiment(
                    name, in: project.datafile, at: place.appending("experiment"))
            }
            experiment = found
            variation = try Self.variation(body, of: found)
        } catch {
            throw EventRefusal(error, isRetriable: error.kind == .notFound)
        }
    }

    /// Creates an exposure to a variation of an experiment in the datafile of a project.
    ///
    /// - Parameter variation: `nil` to use the user's assignment.
    public init(
        userID: Identifier, happenedAt: Instant, project: Project, experiment: Experiment, variation: Variation?
    ) {
        self.userID = userID
        self.happenedAt = happenedAt
        self.project = project
        self.experiment = experiment
        self.variation = variation
        place = []
    }

    /// Returns the variation that `variation_id` or `variation_key` names; `nil` without both.
    ///
    /// - Throws: 400 if both are given; 422 if the experiment does not have the variation.
    static func variation(_ body: EventInput, of experiment: Experiment) throws(CoreError) -> Variation? {
        let id = try body.object.optionalText("variation_id", in: body.place)
        let key = try body.object.optionalText("variation_key", in: body.place)
        guard id == nil || key == nil else {
            throw CoreError(
                .invalid, "either `variation_id` or `variation_key` may be given; got both",
                at: body.place.appending("variation_key"))
        }
        let found: Variation?
        switch (id, key) {
        case (let id?, _): found = experiment.variation(id: Identifier(id))
        case (_, let key?): found = experiment.variation(key: Identifier(key))
        case (nil, nil): return nil
        }
        guard let found else {
            let list = experiment.variations.prefix(20).map { "\($0.key) (id \($0.id))" }.joined(separator: ", ")
            throw CoreError(
                .unprocessable, "the variation must be one of the experiment's: \(list)",
                at: body.place.appending(id == nil ? "variation_key" : "variation_id"), mayBeStale: true)
        }
        return found
    }

    /// Whether the profile must be read, because the event names no variation.
    public var needsProfile: Bool { variation == nil }

    /// Returns the exposure to record.
    ///
    /// - Parameters:
    ///   - profile: the user's profile, if it was read.
    ///   - leavesOpen: whether the exposure may lack a variation. An edge leaves the variation of a user without an
    ///     assignment open, because its upstream may have an assignment that the edge lacks.
    /// - Throws: a retriable refusal with 422 if neither the event nor an assignment names a variation, unless
    ///   `leavesOpen`.
    public func exposure(
        _ profile: ProfileRecord?, isOpen leavesOpen: Bool = false
    ) throws(EventRefusal) -> Exposure {
        let held = DecisionService(datafile: project.datafile)
            .heldVariation(of: experiment, for: userID, stored: StickyAssignments(profile, userID, project))
        if variation == nil, held == nil, leavesOpen { return openExposure }
        guard let variation = variation ?? held?.variation else {
            throw EventRefusal(
                CoreError(
                    .unprocessable, "the user has no variation of this experiment; name one, or assign the user first",
                    at: place.appending("user_id")), isRetriable: true)
        }
        var payload = JSONWriter()
        payload.beginObject()
        payload.member("variation_key", variation.key.string)
        payload.endObject()
        return Exposure(
            userID: userID, experimentID: experiment.id, experimentKey: experiment.key, variationID: variation.id,
            happenedAt: happenedAt, isChosen: held?.source.isChosen ?? false, sdkKey: project.sdkKey,
            payload: payload.finish(), active: project.allocation(experimentID: experiment.id),
            enrollsWith: enrollingVersion)
    }

    /// An exposure without a variation, which the upstream of an edge completes.
    private var openExposure: Exposure {
        Exposure(
            userID: userID, experimentID: experiment.id, experimentKey: experiment.key, variationID: Identifier(""),
            happenedAt: happenedAt, isChosen: false, sdkKey: project.sdkKey, payload: Array("{}".utf8))
    }

    /// The version of the definitions by which the exposure enrolls its user; `nil` if it enrolls nobody. Only an
    /// exposure that names its variation enrolls: otherwise the variation is one that the user has already.
    private var enrollingVersion: Int64? {
        guard let variation else { return nil }
        return project.enrollingVersion(experimentID: experiment.id, variationID: variation.id)
    }
}
