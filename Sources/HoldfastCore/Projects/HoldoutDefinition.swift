public import Bucketing
public import JSON
public import Storage

/// A holdout of a project: a share of the users whom flags keep at their defaults, so that the effect of everything that
/// the others get can be measured.
struct HoldoutDefinition: KeyedDefinition {
    /// The members of a datafile that have holdouts: of all flags, and of some rules.
    static let lists = ["holdouts", "localHoldouts"]

    let id: Identifier
    let key: Identifier
    /// A percentage.
    var share = 0.0
    var isPaused = false
    /// Conditions as they were given; null for everybody. `nil` if a datafile brought others.
    var audience: JSONValue? = .null
    /// The flags that it applies to; `nil` for all.
    var flags: [Identifier]?
    var description = ""
    /// What its users are compared by, besides any goal.
    var metrics = ExperimentMetrics()
    /// As the datafile has it.
    var source = JSONObject()

    var listKey: Identifier { key }
    var list: String { flags == nil ? "holdouts" : "localHoldouts" }
    /// The id of its own audience in the datafile.
    var audienceID: String { "holdfast\(id)" }

    /// Creates a holdout. Project and key determine the id, so that a holdout that is deleted and made again keeps out the
    /// same users, and one of another project others.
    init(key: Identifier, sdkKey: String) {
        self.key = key
        id = Identifier(DerivedID.of("holdout/\(sdkKey)/\(key)"))
    }

    /// - Returns: `nil` for a holdout that was not defined over the API.
    init?(_ source: JSONObject, audiences: [Identifier: JSONValue]) {
        guard Self.isOwn(.object(source)), let members = source[Annotations.member]?.object else { return nil }
        id = source.identifier("id") ?? ""
        key = source.identifier("key") ?? ""
        let allocation = source["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) } ?? .empty
        share = Double(allocation.ranges.last?.end ?? 0) / 100
        isPaused = source["status"] != ExperimentStatus.running.json
        audience = ExperimentDefinition.audience(
            of: source, given: members["audience"], audiences[Identifier("holdfast\(id)")])
        flags = members["flags"] == nil ? nil : members.identifiers("flags")
        description = members["description"]?.string ?? ""
        metrics = ExperimentMetrics(stored: members["metrics"])
        self.source = source
    }

    static func isOwn(_ element: JSONValue) -> Bool { element.object?[Annotations.member]?.object?["rest"] != nil }

    /// Returns the holdout as SDKs know it.
    ///
    /// - Parameter rules: the ids of the rules that it applies to, if not to all flags.
    func json(rules: [Identifier]) -> JSONObject {
        var object = source
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        object["status"] = isPaused ? ExperimentStatus.paused.json : ExperimentStatus.running.json
        object["layerId"] = ""
        let variation = JSONValue.string(DerivedID.of("\(id)/off"))
        object["variations"] = [["id": variation, "key": "off", "featureEnabled": false, "variables": []]]
        let end = Int64((share * 100).rounded())
        object["trafficAllocation"] = end == 0 ? [] : [["entityId": variation, "endOfRange": .integer(end)]]
        if let audience {
            let ids: JSONValue = audience.isNull ? [] : [.string(audienceID)]
            object["audienceIds"] = ids
            object["audienceConditions"] = audience.isNull ? nil : Optional(ids)
        }
        object["includedRules"] = flags == nil ? nil : Optional(JSONValue(rules))
        var members = JSONObject()
        members["rest"] = .string(DerivedID.of("\(id)/rest"))
        members["flags"] = flags.map { JSONValue($0) }
        if !description.isEmpty { members["description"] = .string(description) }
        if let audience, ConditionDialect.datafileForm(of: audience) != audience { members["audience"] = audience }
        if !metrics.isEmpty { members["metrics"] = metrics.json }
        object[Annotations.member] = .object(members)
        return object
    }
}

extension Holdout {
    /// The response of `GET /v1/holdouts/{key}`.
    public func description(in datafile: Datafile, _ definitions: ProjectDefinitions, sdkKey: String) -> JSONValue {
        guard let holdout = definitions.holdouts[key] else { return .null }
        var object = JSONObject()
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        object["status"] = .string(ExperimentStatus.name(of: status))
        object["share"] = .shortest(holdout.share)
        object["flags"] = holdout.flags.map { JSONValue($0) } ?? .null
        object["audience"] = holdout.audience ?? audienceConditions
        object["description"] = .string(holdout.description)
        object["metrics"] = holdout.metrics.isEmpty ? nil : Optional(holdout.metrics.json)
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(datafile.revision)
        return .object(object)
    }
}

/// What an admin defines of a holdout with `PUT /v1/holdouts/{key}`; absent members keep their values.
public struct HoldoutChange: Sendable {
    let key: String
    private var share: Double?
    private var status: ExperimentStatus?
    /// A wrapped `nil` stands for all flags.
    private var flags: [Identifier]??
    private var audience: JSONValue?
    private var description: String?
    private var metrics: ExperimentMetrics?

    private static let flagLimit = 100

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.key = key
        guard value.object != nil else {
            throw CoreError(.invalid, "a holdout must be an object; got \(value.kind)", at: [])
        }
        var faults = FaultCollector()
        let known = ["key", "share", "status", "flags", "audience", "description", "metrics"]
        let object =
            faults.object(
                value, "a holdout", knowing: known, ignoring: ["id", "sdk_key", "revision", "proposals"], at: [])
            ?? JSONObject()
        if let given = faults.collect(try object.optionalText("key")), !given.utf8.elementsEqual(key.utf8) {
            faults.add("`key` must be the key in the path, '\(key)'; got '\(given)'", at: ["key"])
        }
        share = faults.collect(try object.optionalNumber("share", 0...100))
        if let text = faults.collect(try object.optionalText("status")) {
            status = ExperimentStatus(name: text)
            if status != .running, status != .paused {
                faults.add("`status` must be running or paused; got '\(text)'", at: ["status"])
            }
        }
        if let given = object["flags"] {
            let list = faults.list(object, "flags", 1...Self.flagLimit, at: [])
            if !given.isNull, let list {
                var keys: [Identifier] = []
                for (value, place) in list {
                    guard let text = value.string else {
                        faults.add("a flag must be named by its key; got \(value.kind)", at: place)
                        continue
                    }
                    if keys.contains(Identifier(text)) {
                        faults.add("the flags must differ; got '\(text)' twice", at: place)
                    }
                    keys.append(Identifier(text))
                }
                flags = .some(keys)
            } else if given.isNull {
                flags = .some(nil)
            }
        }
        audience = object["audience"]
        if let audience, !audience.isNull {
            for fault in AudienceRules.faults(in: audience, at: ["audience"]) {
                faults.add(fault.reason, at: fault.pointer)
            }
        }
        description = faults.text(object, "description", atMost: 4_096)
        if let value = object["metrics"] {
            metrics = value.isNull ? ExperimentMetrics() : ExperimentMetrics(value, at: ["metrics"], &faults)
            if metrics?.breakdowns.isEmpty == false {
                faults.add("`breakdowns` must be left out, because holdouts have none", at: ["metrics", "breakdowns"])
            }
        }
        try faults.check()
    }

    /// - Throws: 422 with every segment that is not defined.
    public func checkSegments(_ schema: AttributeSchema) throws(CoreError) {
        var faults = FaultCollector()
        faults.checkSegments(of: audience, schema, at: [])
        try faults.check()
    }

    /// The conditions of the audience that no user can meet whose attributes are as they are defined.
    public func warnings(_ schema: AttributeSchema, _ datafile: Datafile) -> [JSONFault] {
        guard let audience, !audience.isNull else { return [] }
        return SegmentRules.warnings(
            in: audience, at: ["audience"], schema: schema, attributes: datafile.attributes.map(\.key))
    }

    /// Creates or updates the holdout of a project.
    ///
    /// - Returns: whether it is new.
    /// - Throws: 409 if an experiment, a flag or a holdout that a datafile brought has the key; 422 if a new holdout has
    ///   no share, or a flag or a metric is not defined.
    public func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool {
        let key = Identifier(key)
        let former = definitions.holdouts[key]
        let isTaken = HoldoutDefinition.lists.contains { name in
            definitions.root.objects(name).contains { $0.identifier("key") == key }
        }
        if former == nil, isTaken || definitions.experiments[key] != nil || definitions.flags[key] != nil {
            throw CoreError(
                .conflict,
                "a holdout must have a key that no experiment, flag or holdout of a datafile has; '\(key)' is taken")
        }
        guard former != nil || share != nil else {
            throw CoreError(.unprocessable, "a new holdout must have a `share`", at: ["share"])
        }
        for (index, flag) in (flags.flatMap { $0 } ?? []).enumerated() where definitions.flags[flag] == nil {
            throw CoreError(
                .unprocessable,
                "no flag has the key '\(flag)'" + Spelling.hint(for: flag, among: definitions.flags.map(\.key)),
                at: JSONPointer().appending("flags").appending(index))
        }
        try metrics?.check(definitions.metrics)
        var holdout = former ?? HoldoutDefinition(key: key, sdkKey: definitions.sdkKey)
        holdout.share = share ?? holdout.share
        if let status { holdout.isPaused = status == .paused }
        if let flags { holdout.flags = flags }
        holdout.audience = audience ?? holdout.audience
        holdout.description = description ?? holdout.description
        holdout.metrics = metrics ?? holdout.metrics
        definitions.holdouts.set(holdout)
        return former == nil
    }
}

extension ProjectDefinitions {
    /// Removes a holdout of the API.
    ///
    /// - Returns: false if there is none.
    public mutating func removeHoldout(_ key: Identifier) -> Bool {
        guard holdouts[key] != nil else { return false }
        holdouts.remove(key)
        return true
    }
}
