public import Bucketing
public import JSON

/// The body of `PUT /v1/holdouts/{key}`. Members that it lacks keep their values. ``HoldoutDefinition/members`` lists
/// them.
public struct HoldoutChange: ElementChange {
    private let key: Identifier
    private let given: Given<HoldoutDefinition>

    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        self.key = Identifier(key)
        given = try HoldoutDefinition.members.read(value, key: key)
    }

    public var audiences: [(conditions: JSONValue, place: JSONPointer)] {
        (given.value("audience", \.audience) ?? nil).map { [($0, JSONPointer().appending("audience"))] } ?? []
    }

    /// Creates or updates a holdout of a project.
    ///
    /// - Returns: whether it is new.
    /// - Throws: 409 if an experiment, a flag or a holdout that a datafile brought has the key; 422 if a new holdout
    ///   has no share, or a flag or a metric is not defined.
    public func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool {
        let former = definitions.holdouts[key]
        if former == nil,
            definitions.hasHoldout(key) || definitions.experiments[key] != nil || definitions.flags[key] != nil
        {
            throw CoreError(
                .conflict,
                "a holdout must have a key that no experiment, flag or holdout of a datafile has; '\(key)' is taken")
        }
        guard former != nil || given.has("share") else {
            throw CoreError(.unprocessable, "a new holdout must have a `share`", at: ["share"])
        }
        for (index, flag) in (given.draft.flags ?? []).enumerated() where definitions.flags[flag] == nil {
            throw CoreError(
                .unprocessable,
                "no flag has the key '\(flag)'" + Spelling.hint(for: flag, among: definitions.flags.map(\.key)),
                at: JSONPointer().appending("flags").appending(index))
        }
        try given.draft.metrics.check(definitions.metrics)
        var holdout = former ?? HoldoutDefinition(key: key, sdkKey: definitions.sdkKey)
        HoldoutDefinition.members.apply(given, to: &holdout)
        definitions.holdouts.set(holdout)
        return former == nil
    }
}

extension ProjectDefinitions {
    /// Removes a holdout that was defined over the API.
    ///
    /// - Returns: false if there is none with the key.
    public mutating func removeHoldout(_ key: Identifier) -> Bool {
        guard holdouts[key] != nil else { return false }
        holdouts.remove(key)
        return true
    }
}

extension Holdout {
    /// The response of `GET /v1/holdouts/{key}`.
    public func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue {
        guard let holdout = compiled.definitions.holdouts[key] else { return .null }
        var object = JSONObject()
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        HoldoutDefinition.members.show(holdout, in: &object)
        if holdout.audience == nil { object["audience"] = audienceConditions }
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(compiled.datafile.revision)
        return .object(object)
    }
}
