public import Bucketing
public import Chronology
import Definitions
import JSON
public import Storage

/// An exposure as a client sends it, `{"user_id","experiment","variation_id" or "variation_key"?,"timestamp"?,
/// "sdk_key"?}`, with the experiment and variation looked up.
public struct ExposureInput {
    public let userID: Identifier
    public let happenedAt: Instant
    public let project: Project
    public let experiment: Experiment
    /// The variation that the event names; `nil` if it names none, so that the user's assignment counts.
    private let variation: Variation?
    private let place: JSONPointer

    /// The members of an exposure.
    public static let members = ["user_id", "experiment", "variation_id", "variation_key", "timestamp", "sdk_key"]

    /// Parses an exposure, and looks up its project, experiment and variation.
    ///
    /// - Throws: a refusal that is retriable if the project or experiment is unknown, because it may be defined later.
    public init(
        _ body: EventInput, _ projects: ProjectView, for access: ProjectAccess
    ) throws(EventRefusal) {
        place = body.place
        do throws(CoreError) {
            userID = try body.userID()
            happenedAt = try body.happenedAt()
            project = try projects.project(named: try body.sdkKey(), for: access)
        } catch {
            throw EventRefusal(error, isRetriable: error.kind == .notFound)
        }
        do throws(CoreError) {
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

    /// Creates an exposure to a variation of an experiment in the datafile of a project. Without a variation, the
    /// user's assignment counts.
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
    ///   - isOpen: whether an exposure of a user without an assignment is returned without a variation. An edge leaves
    ///     the variation open, because its upstream may have an assignment that the edge lacks.
    /// - Throws: 422 if the event names no variation and the user has none.
    public func exposure(_ profile: ProfileRecord?, isOpen: Bool = false) throws(EventRefusal) -> Exposure {
        let held = DecisionService(datafile: project.datafile)
            .heldVariation(of: experiment, for: userID, stored: StickyAssignments(profile, userID, project))
        if variation == nil, held == nil, isOpen {
            return Exposure(
                userID: userID, experimentID: experiment.id, experimentKey: experiment.key, variationID: Identifier(""),
                happenedAt: happenedAt, isChosen: false, sdkKey: project.sdkKey, payload: Array("{}".utf8))
        }
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
            enrollsWith: self.variation.flatMap {
                project.enrollingVersion(experimentID: experiment.id, variationID: $0.id)
            })
    }
}
