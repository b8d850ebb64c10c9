public import Bucketing
public import Definitions
public import JSON
import Storage

/// What an admin defines of an experiment with `PUT /v1/experiments/{key}`; absent members keep their values.
///
/// `{"variations":["control","new"],"traffic":50,"status":"running","audience":[…]}`, or with weights
/// `{"variations":[{"key":"control","weight":3},{"key":"new","weight":1}]}`. Weights are relative: 1:1, 50:50 and
/// 5000:5000 are the same. Without weights the variations get equal shares.
public struct ExperimentChange: Sendable {
    public struct VariationChange: Sendable {
        var key: String
        var id: String?
        var weight: Double?
    }

    public var key: String
    public var id: String?
    public var variations: [VariationChange]?
    /// The percentage of users who are enrolled, 0 to 100.
    public var traffic: Double?
    public var status: ExperimentStatus?
    /// Conditions in the form of a datafile's audience; `null` admits everybody.
    public var audience: JSONValue?
    var enrollment: Enrollment?
    /// The group of mutually exclusive experiments that the experiment is to be in.
    var group: GroupPlace?

    struct GroupPlace: Sendable {
        /// `nil` for no group.
        var name: String?
    }

    /// Whether anybody new is enrolled.
    public enum Enrollment: String, Sendable, CaseIterable {
        case open
        /// Enrolled users keep their variation, and nobody else gets one.
        case closed
    }

    /// The maximum number of variations.
    static let variationLimit = 1_000
    static let greatestWeight = 1_000_000.0

    init(key: String) {
        self.key = key
    }

    /// A step of the experiment's ramp.
    init(key: String, rampTraffic: Double) {
        self.key = key
        traffic = rampTraffic
        isOfRamp = true
    }

    /// What the experiment's bandit gives to its variations, by their keys.
    init(key: String, weights: [(key: Identifier, weight: Double)]) {
        self.key = key
        variations = weights.map { VariationChange(key: $0.key.string, weight: $0.weight) }
    }

    /// What people say about the experiment, and when it changes by itself.
    var details = Given(draft: ExperimentDetails())
    /// Whether the experiment's ramp makes the change.
    private(set) var isOfRamp = false
    /// A wrapped `nil` leaves it to the project.
    var assignmentLifetime: AssignmentLifetime??

    static let members =
        ["key", "id", "variations", "traffic", "status", "enrollment", "group", "audience"]
        + ExperimentDetails.members.names + [AssignmentLifetime.apiMember]

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.key = key
        guard value.object != nil else {
            throw CoreError(.invalid, "an experiment must be an object; got \(value.kind)", at: [])
        }
        var faults = FaultCollector()
        let shown = ["audience_conditions", "traffic_allocation", "sdk_key", "revision", "conclusion", "proposals"]
        let object =
            faults.object(value, "an experiment", knowing: Self.members, ignoring: shown, at: []) ?? JSONObject()
        if let given = faults.collect(try object.optionalText("key")), !given.utf8.elementsEqual(key.utf8) {
            faults.add("`key` must be the key in the path, '\(key)'; got '\(given)'", at: ["key"])
        }
        read(object, at: [], &faults)
        audience = object["audience"]
        if let audience, !audience.isNull {
            for fault in AudienceRules.faults(in: audience, at: ["audience"]) {
                faults.add(fault.reason, at: fault.pointer)
            }
        }
        variations = object["variations"].flatMap { Self.variations($0, &faults) }
        details = ExperimentDetails.members.read(object, at: [], &faults)
        assignmentLifetime = faults.collect(try AssignmentLifetime.change(in: object)) ?? nil
        try faults.check()
    }

    /// Reads the members that a flag's rule may set, too.
    mutating func read(_ object: JSONObject, at place: JSONPointer, _ faults: inout FaultCollector) {
        id = faults.collect(try object.optionalText("id", in: place))
        if let id { _ = faults.collect(try ProfileInput.checkExperimentID(id, at: place.appending("id"))) }
        if let text = faults.collect(try object.optionalText("status", in: place)) {
            status = ExperimentStatus(name: text)
            if status == nil {
                let names = ExperimentStatus.allCases.map(\.name)
                faults.add(
                    "`status` must be one of \(names.joined(separator: ", ")); got '\(text)'"
                        + Spelling.hint(for: text, among: names), at: place.appending("status"))
            }
        }
        traffic = faults.collect(try object.optionalNumber("traffic", 0...100, in: place))
        if let text = faults.collect(try object.optionalText("enrollment", in: place)) {
            enrollment = Enrollment(rawValue: text)
            if enrollment == nil {
                faults.add(
                    "`enrollment` must be open or closed; got '\(text)'", at: place.appending("enrollment"))
            }
        }
        group = faults.collect(try Self.group(of: object, in: place))
    }

    /// Returns the member `group`, of which null takes the experiment out of its group; `nil` if it is absent.
    private static func group(of object: JSONObject, in place: JSONPointer) throws(CoreError) -> GroupPlace? {
        guard let value = object["group"] else { return nil }
        guard let name = try object.optionalText("group", in: place) else {
            return value.isNull ? GroupPlace() : nil
        }
        return GroupPlace(name: try checkKey(name, at: place.appending("group")))
    }

    private static func variations(_ value: JSONValue, _ faults: inout FaultCollector) -> [VariationChange]? {
        let place: JSONPointer = ["variations"]
        guard let list = value.array, !list.isEmpty else {
            let found = value.array == nil ? value.kind : "an empty one"
            faults.add("`variations` must be an array of at least one variation; got \(found)", at: place)
            return nil
        }
        guard list.count <= variationLimit else {
            faults.add("`variations` must have at most \(variationLimit) elements; got \(list.count)", at: place)
            return nil
        }
        var variations: [VariationChange] = []
        var keys: Set<Identifier> = []
        for (index, element) in list.enumerated() {
            let place = place.appending(index)
            guard let variation = faults.collect(try Self.variation(element, at: place)) else { continue }
            if !keys.insert(Identifier(variation.key)).inserted {
                faults.add("the keys of variations must differ; got '\(variation.key)' twice", at: place)
            }
            variations.append(variation)
        }
        let weights = variations.compactMap(\.weight)
        // Of variations with faults nobody knows whether they have a weight.
        guard variations.count == list.count, !weights.isEmpty else { return variations }
        if weights.count < variations.count {
            faults.add(
                "either every variation must have a weight or none; got \(weights.count) of \(variations.count)",
                at: place)
        } else if !weights.contains(where: { $0 > 0 }) {
            faults.add(
                "at least one weight must be greater than 0; to enroll nobody, set `traffic` to 0", at: place)
        }
        return variations
    }

    private static func variation(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> VariationChange {
        if let key = value.string {
            return VariationChange(key: try checkKey(key, at: place))
        }
        guard value.object != nil else {
            throw CoreError(.invalid, "a variation must be a key or an object; got \(value.kind)", at: place)
        }
        let object = try value.object("a variation", knowing: ["key", "id", "weight"], ignoring: ["share"], at: place)
        var variation = VariationChange(
            key: try checkKey(try object.text("key", in: place), at: place.appending("key")))
        variation.id = try object.optionalText("id", in: place)
        if let id = variation.id, !ProfileInput.isVariationID(id.utf8) {
            throw CoreError(
                .invalid, "`id` must be 1 to 255 bytes long; got \(id.utf8.count)", at: place.appending("id"))
        }
        variation.weight = try object.optionalNumber("weight", 0...greatestWeight, in: place)
        return variation
    }

    /// Returns a key if it has 1 to 255 bytes without NUL.
    public static func checkKey(_ key: String, at place: JSONPointer?) throws(CoreError) -> String {
        guard (1...255).contains(key.utf8.count), !key.utf8.contains(0) else {
            throw CoreError(
                .invalid, "a key must be 1 to 255 bytes long, without NUL; got \(key.utf8.count) bytes", at: place)
        }
        return key
    }
}
