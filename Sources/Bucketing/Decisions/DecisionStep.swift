public import JSON

/// A step of a decision about one experiment. The steps explain why a user gets a variation, or none. ``DecisionRun``
/// records them in order while it decides, so the last one is the step that decided.
public enum DecisionStep: Sendable {
    /// A holdout was evaluated. The bucket is `nil` if the audience excludes the user; the variation is `nil` unless
    /// the user is held out.
    case holdout(Holdout, AudienceStep, BucketStep?, Variation?)
    /// The holdout keeps the user out of other rules, but not out of targeted deliveries such as this one.
    case holdoutExemption(Holdout)
    /// The status of the experiment, as the datafile spells it.
    case status(String, isRunning: Bool)
    /// A variation forced on the user for a test.
    case forcedVariation(HeldStep)
    /// An override, which an admin has set.
    case override(HeldStep)
    /// The variation that the datafile forces on the user.
    case whitelist(HeldStep)
    /// The assignment in the profile of the user.
    case storedAssignment(HeldStep)
    /// The audience of the experiment was evaluated.
    case audience(AudienceStep)
    /// Enrollment is closed: the experiment gets no new users.
    case closedEnrollment
    /// A group of mutually exclusive experiments was evaluated. It admits a user to at most one of them.
    case group(Group, BucketStep, isChosen: Bool)
    /// The user was bucketed in the traffic of the experiment. The variation is `nil` if the traffic leaves the user
    /// out.
    case bucketing(BucketStep, Variation?)
    /// The profile has no room for another assignment, so the user is not enrolled.
    case fullProfile
    /// A contextual bandit chose a variation, by weights that are the same for all users whom it admits.
    case prediction(BucketStep, Variation?)

    /// A source of variations that precedes audience and bucketing, such as the whitelist, and the variation that it
    /// has for the user.
    public struct HeldStep: Sendable {
        /// The id of the variation; for a whitelist, its key. `nil` if the source has no variation for the user.
        public let name: Identifier?
        /// `nil` if the source has no variation for the user, or if the datafile no longer has the variation.
        public let variation: Variation?
    }

    /// The evaluation of an audience.
    public struct AudienceStep: Sendable {
        public let admits: Bool
        /// See ``Condition/explained(for:showingValues:)``; `null` if there are no conditions, so everyone is admitted.
        public let conditions: JSONValue
    }

    /// The bucketing of the user in a traffic allocation.
    public struct BucketStep: Sendable {
        public let bucketingID: Identifier
        /// The id that was hashed together with the bucketing id: that of the experiment, group or holdout; for a
        /// prediction, the experiment's id followed by `/prediction`.
        public let parentID: Identifier
        public let result: BucketingResult
        /// The range that contains the user's bucket value, even if the range belongs to no entity; `nil` beyond the
        /// last range.
        public let range: Range<Int>?
    }
}

extension DecisionStep {
    /// The name of the step in the API.
    public var name: String {
        switch self {
        case .holdout: "holdout"
        case .holdoutExemption: "holdout_exemption"
        case .status: "status"
        case .forcedVariation: "forced_variation"
        case .override: "override"
        case .whitelist: "whitelist"
        case .storedAssignment: "stored_assignment"
        case .audience: "audience"
        case .closedEnrollment: "enrollment"
        case .group: "group"
        case .bucketing: "bucketing"
        case .fullProfile: "profile"
        case .prediction: "prediction"
        }
    }

    /// The step as a JSON object: its name as `step`, its `result`, and the values that led to it.
    public var json: JSONObject {
        var json = JSONObject()
        json["step"] = .string(name)
        json["result"] = .string(result)
        switch self {
        case .holdout(let holdout, let audience, let bucket, _):
            json.describe(holdout)
            json["audience"] = audience.conditions
            if let bucket { json.describe(bucket) }
        case .holdoutExemption(let holdout):
            json.describe(holdout)
        case .status(let status, _):
            json["status"] = .string(ExperimentStatus.name(of: status))
        case .forcedVariation(let held), .override(let held), .whitelist(let held), .storedAssignment(let held):
            guard let name = held.name else { break }
            if let variation = held.variation {
                json.describe(variation)
            } else if case .whitelist = self {
                json["variation_key"] = .string(name.string)
            } else {
                json["variation_id"] = .string(name.string)
            }
        case .audience(let audience):
            json["audience"] = audience.conditions
        case .group(let group, let bucket, _):
            json["group_id"] = .string(group.id.string)
            json["experiment_id"] = bucket.result.entityID.map { .string($0.string) } ?? .null
            json.describe(bucket)
        case .bucketing(let bucket, let variation), .prediction(let bucket, let variation):
            if let variation { json.describe(variation) }
            json.describe(bucket)
        case .closedEnrollment, .fullProfile:
            break
        }
        return json
    }

    /// The result of the step in the API.
    private var result: String {
        switch self {
        case .holdout(_, let audience, _, let variation):
            if variation != nil { return "held_out" }
            return audience.admits ? "outside_traffic" : "outside_audience"
        case .holdoutExemption:
            return "exempt"
        case .status(_, let isRunning):
            return isRunning ? "running" : "not_running"
        case .forcedVariation(let held), .override(let held), .whitelist(let held), .storedAssignment(let held):
            if held.name == nil { return "none" }
            return held.variation == nil ? "gone" : "applies"
        case .audience(let audience):
            return audience.admits ? "admits" : "excludes"
        case .closedEnrollment:
            return "closed"
        case .group(_, let bucket, let isChosen):
            if isChosen { return "this_experiment" }
            return bucket.result.entityID == nil ? "no_experiment" : "other_experiment"
        case .bucketing(_, let variation), .prediction(_, let variation):
            return variation == nil ? "outside_traffic" : "in_variation"
        case .fullProfile:
            return "full"
        }
    }
}

extension JSONObject {
    fileprivate mutating func describe(_ holdout: Holdout) {
        self["holdout_id"] = .string(holdout.id.string)
        self["holdout_key"] = .string(holdout.key.string)
    }

    fileprivate mutating func describe(_ variation: Variation) {
        self["variation_id"] = .string(variation.id.string)
        self["variation_key"] = .string(variation.key.string)
    }

    fileprivate mutating func describe(_ bucket: DecisionStep.BucketStep) {
        self["bucketing_id"] = .string(bucket.bucketingID.string)
        self["parent_id"] = .string(bucket.parentID.string)
        self["hash"] = .integer(Int64(bucket.result.hash))
        self["bucket_value"] = .integer(Int64(bucket.result.bucketValue))
        self["range"] =
            bucket.range.map {
                ["start": .integer(Int64($0.lowerBound)), "end": .integer(Int64($0.upperBound))]
            } ?? .null
    }
}

// MARK: - Recording

/// The steps recorded by one ``DecisionRun``.
struct DecisionTrace {
    private(set) var steps: [DecisionStep] = []
    /// Whether the steps include the values of the user's attributes.
    let showsValues: Bool

    init(showsValues: Bool) {
        self.showsValues = showsValues
    }

    mutating func add(_ step: DecisionStep) {
        steps.append(step)
    }
}

extension DecisionRun {
    /// Records a step if an explanation is requested.
    @inline(__always)
    func record(_ step: @autoclosure () -> DecisionStep) {
        guard trace != nil else { return }
        // Evaluated before the mutation below, because building a step reads `trace`.
        let step = step()
        trace?.add(step)
    }

    /// Returns the step for an audience that has been evaluated.
    func step(_ audience: Condition?, admits: Bool) -> DecisionStep.AudienceStep {
        .init(
            admits: admits,
            conditions: audience?.explained(for: user, showingValues: trace?.showsValues ?? false) ?? .null)
    }

    /// Returns the step for a result of bucketing.
    ///
    /// - Parameters:
    ///   - id: the bucketing id that was hashed; `nil` for that of the run.
    ///   - parentID: see ``DecisionStep/BucketStep/parentID``.
    func step(
        _ result: BucketingResult, of id: Identifier? = nil, below parentID: Identifier, _ allocation: TrafficAllocation
    ) -> DecisionStep.BucketStep {
        .init(
            bucketingID: id ?? bucketingID, parentID: parentID, result: result,
            range: allocation.range(at: result.bucketValue))
    }
}

extension TrafficAllocation {
    /// Returns the range that contains a bucket value, even if the range belongs to no entity; `nil` beyond the last
    /// range.
    func range(at bucketValue: Int) -> Swift.Range<Int>? {
        var start = 0
        for range in ranges {
            // A range that ends before the preceding one is empty.
            if bucketValue < range.end { return start..<range.end }
            start = max(start, range.end)
        }
        return nil
    }
}
