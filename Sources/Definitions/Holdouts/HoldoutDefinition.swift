public import Bucketing
public import JSON

/// A holdout of a project: a share of the users whom flags keep at their defaults, so that the effect of everything that
/// the others get can be measured.
public struct HoldoutDefinition: KeyedDefinition {
    /// The members of a datafile that have holdouts: of all flags, and of some rules.
    public static let lists = ["holdouts", "localHoldouts"]

    public let id: Identifier
    public let key: Identifier
    /// A percentage.
    public var share = 0.0
    /// Running or paused.
    public var status = ExperimentStatus.running
    /// The flags that it applies to; `nil` for all.
    public var flags: [Identifier]?
    /// See ``GivenAudience``.
    public var audience: JSONValue? = .null
    public var description = ""
    /// What its users are compared by, besides any goal.
    public var metrics = ExperimentMetrics()
    /// As the datafile has it.
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
    public var list: String { flags == nil ? "holdouts" : "localHoldouts" }
    /// The id of its own audience in the datafile.
    public var audienceID: String { GivenAudience.id(of: id) }

    private init(id: Identifier, key: Identifier) {
        self.id = id
        self.key = key
    }

    /// Creates a holdout. Project and key determine the id, so that a holdout that is deleted and made again keeps out the
    /// same users, and one of another project others.
    public init(key: Identifier, sdkKey: String) {
        self.init(id: Identifier(DerivedID.of("holdout/\(sdkKey)/\(key)")), key: key)
    }

    // MARK: The datafile

    /// - Returns: `nil` for a holdout that was not defined over the API.
    public init?(_ source: JSONObject, audiences: [Identifier: JSONValue]) {
        guard Self.isOwn(.object(source)), let members = source[Annotations.member]?.object else { return nil }
        self.init(id: source.identifier("id") ?? "", key: source.identifier("key") ?? "")
        let allocation = source["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) }
        share = Double(allocation?.ranges.last?.end ?? 0) / 100
        status = source["status"] == ExperimentStatus.running.json ? .running : .paused
        audience = GivenAudience.read(source, given: members["audience"], audiences[Identifier(audienceID)])
        Self.members.readStored(members, into: &self)
        self.source = source
    }

    public static func isOwn(_ element: JSONValue) -> Bool {
        element.object?[Annotations.member]?.object?["rest"] != nil
    }

    /// Writes the holdout as SDKs know it, as if it had been read from the datafile.
    public mutating func write(rules: [Identifier]) -> JSONObject {
        source = json(rules: rules)
        return source
    }

    /// Returns the holdout as SDKs know it.
    ///
    /// - Parameter rules: the ids of the rules that it applies to, if not to all flags.
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
