public import Bucketing
public import JSON

/// A holdout of a project: a percentage of the users who get the defaults of all flags, or of some. Comparing them with
/// the other users shows the total effect of the experiments and rollouts.
public struct HoldoutDefinition: KeyedDefinition {
    /// The members of a datafile that list holdouts: the first has those for all flags, the second those for some
    /// rules.
    public static let lists = ["holdouts", "localHoldouts"]

    public let id: Identifier
    public let key: Identifier
    /// The percentage of users who are held out, 0 to 100.
    public var share = 0.0
    /// Running or paused.
    public var status = ExperimentStatus.running
    /// The flags that the holdout applies to; `nil` for all.
    public var flags: [Identifier]?
    /// The conditions as they were given, null for everybody; see ``GivenAudience``.
    public var audience: JSONValue? = .null
    public var description = ""
    /// The metrics by which held-out users are compared with the others. Goals need not be listed here.
    public var metrics = ExperimentMetrics()
    /// The JSON object from the datafile. ``json(rules:)`` keeps the members that Holdfast does not know.
    private var source = JSONObject()

    public static let members = MemberTable<HoldoutDefinition>(
        "a holdout", blank: HoldoutDefinition(id: "", key: ""), showing: ["id", "sdk_key", "revision", "proposals"],
        [
            Member("share", \.share, .number(0...100), "The percentage of users who are held out."),
            Member("status", \.status, .status([.running, .paused]), "`paused`: nobody is held out."),
            Member(
                "flags", \.flags, Form<[Identifier]>.keys(1...100, of: "flag").optional(),
                "The keys of the flags that it applies to, all their experiments and targeted rollouts included; null for all flags. "
                    + "An experiment is a flag of its key.", .init(isClearedByNull: true, isStored: true)),
            Member(
                "audience", \.audience, .audience,
                "Conditions in the format of a datafile's typed audience, in which `{\"segment\":\"…\"}` names a segment, "
                    + "`type` may be absent, and `match` may be `in` or `not_in`; null admits everybody.",
                .init(isClearedByNull: true)),
            Member(
                "description", \.description, .text(atMost: 4_096), "", .init(isClearedByNull: true, isStored: true)),
            Member(
                "metrics", \.metrics, .metrics(breakdowns: false), "",
                .init(isClearedByNull: true, isShownIfSet: true, isStored: true)),
        ])

    public var listKey: Identifier { key }
    /// The member of the datafile that lists the holdout; see ``lists``.
    public var list: String { flags == nil ? "holdouts" : "localHoldouts" }
    /// The id of the audience in the datafile that belongs to this holdout alone.
    public var audienceID: String { GivenAudience.id(of: id) }

    private init(id: Identifier, key: Identifier) {
        self.id = id
        self.key = key
    }

    /// Creates a holdout. Its id is derived from project and key. A holdout that is deleted and created again therefore
    /// holds out the same users, and a holdout with this key in another project holds out others.
    public init(key: Identifier, sdkKey: String) {
        self.init(id: Identifier(DerivedID.of("holdout/\(sdkKey)/\(key)")), key: key)
    }

    // MARK: The datafile

    /// Reads a holdout from a datafile.
    ///
    /// - Returns: `nil` for a holdout that was not defined over the API.
    public init?(_ source: JSONObject, audiences: [Identifier: JSONValue]) {
        guard Self.isOwn(.object(source)), let members = source[Annotations.member]?.object else { return nil }
        self.init(id: source.identifier("id") ?? "", key: source.identifier("key") ?? "")
        let allocation = source["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) }
        // A bucket value is a hundredth of a percent of the users.
        share = Double(allocation?.ranges.last?.end ?? 0) / 100
        status = source["status"] == ExperimentStatus.running.json ? .running : .paused
        audience = GivenAudience.read(source, given: members["audience"], audiences[Identifier(audienceID)])
        Self.members.readStored(members, into: &self)
        self.source = source
    }

    /// Whether a holdout of a datafile was defined over the API. These have the annotation `rest`: the id of the
    /// variation under which the exposures of users who are not held out are recorded.
    public static func isOwn(_ element: JSONValue) -> Bool {
        element.object?[Annotations.member]?.object?["rest"] != nil
    }

    /// Returns ``json(rules:)``, and keeps it as the object that the next change starts from.
    public mutating func write(rules: [Identifier]) -> JSONObject {
        source = json(rules: rules)
        return source
    }

    /// Returns the holdout in the format of a datafile, which SDKs read.
    ///
    /// - Parameter rules: the ids of the rules that the holdout applies to; ignored if it applies to all flags.
    public func json(rules: [Identifier]) -> JSONObject {
        var object = source
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        object["status"] = status.json
        object["layerId"] = ""
        let variation = JSONValue.string(DerivedID.of("\(id)/off"))
        object["variations"] = [["id": variation, "key": "off", "featureEnabled": false, "variables": []]]
        let end = Int64((share * 100).rounded())
        object["trafficAllocation"] = end == 0 ? [] : [["entityId": variation, "endOfRange": .integer(end)]]
        GivenAudience.write(audience, of: id, to: &object, replacing: source)
        object["includedRules"] = flags == nil ? nil : Optional(JSONValue(rules))
        var own = JSONObject()
        own["rest"] = .string(DerivedID.of("\(id)/rest"))
        Self.members.store(self, in: &own)
        own["audience"] = GivenAudience.annotation(audience)
        object[Annotations.member] = .object(own)
        return object
    }
}
