import Bucketing
import JSON

/// Serves each experiment of the API as a flag of the same key with a string variable `value`, the variation's key, so
/// that every SDK and protocol can ask for it. A flag that has the key already stays as it is.
enum ServedExperiments {
    /// Marks an experiment that the API made, unless a flag uses it.
    static func mark(_ key: Identifier, isNew: Bool, in editor: inout DatafileEditor) {
        guard var experiment = editor.experiment(key: key) else { return }
        var annotations = experiment[Annotations.member]?.object ?? JSONObject()
        let isOfAPI = isNew || annotations["flag"] != nil || experiment["layerId"] == experiment["id"]
        guard isOfAPI, !isUsed(experiment, in: editor) else { return }
        annotations["served"] = true
        // Of a flag that has been deleted since.
        annotations["flag"] = nil
        experiment[Annotations.member] = .object(annotations)
        editor.setExperiment(experiment)
    }

    /// Marks the experiment of a key as one that is no flag. Earlier releases let a flag and an experiment have one key:
    /// without the flag, apps that ask for the key must not get the variation of an experiment.
    static func release(_ key: Identifier, in editor: inout DatafileEditor) {
        guard var experiment = editor.experiment(key: key) else { return }
        var annotations = experiment[Annotations.member]?.object ?? JSONObject()
        guard annotations["flag"] == nil else { return }
        annotations["served"] = false
        experiment[Annotations.member] = .object(annotations)
        editor.setExperiment(experiment)
    }

    private static func isUsed(_ experiment: JSONObject, in editor: DatafileEditor) -> Bool {
        guard let id = experiment["id"] else { return false }
        return editor.elements(of: .flags).contains { flag in
            !FlagAnnotations(flag[Annotations.member]?.object).servesExperiment
                && flag["experimentIds"]?.array?.contains(id) ?? false
        }
    }

    /// Adds the flags that are missing, and brings the values of the others up to date.
    ///
    /// - Returns: whether anything changed.
    @discardableResult
    static func serve(in editor: inout DatafileEditor) -> Bool {
        let isOwnProject = editor.value.object?["accountId"] == editor.value.object?["projectId"]
        let candidates = editor.experiments.filter { isServed($0, isOwnProject: isOwnProject) }
        guard !candidates.isEmpty else { return false }
        let former = editor.value
        var flags: [Identifier: JSONObject] = [:]
        var usedIDs: Set<Identifier> = []
        for flag in editor.elements(of: .flags) {
            flags[Identifier(flag["key"]?.string ?? "")] = flag
            guard !FlagAnnotations(flag[Annotations.member]?.object).servesExperiment else { continue }
            for id in flag["experimentIds"]?.array ?? [] { usedIDs.insert(Identifier(id.string ?? "")) }
        }
        var changedFlags: [JSONObject] = []
        var variables: [Identifier: String] = [:]
        for experiment in candidates {
            guard let key = experiment["key"]?.string, let id = experiment["id"]?.string,
                !usedIDs.contains(Identifier(id))
            else { continue }
            let flag = flags[Identifier(key)]
            guard flag.map({ FlagAnnotations($0[Annotations.member]?.object).servesExperiment }) ?? true else {
                continue
            }
            let variableID = DerivedID.of("variable/\(key)")
            variables[Identifier(key)] = variableID
            if let flag, Self.serves(flag, id: id, variableID: variableID) { continue }
            changedFlags.append(Self.flag(serving: key, id: id, variableID: variableID, flag))
        }
        editor.set(changedFlags, in: .flags, by: "key")
        let values = VariationValues(of: editor.experiments, variables: variables)
        var written: [Identifier: Int] = [:]
        editor.changeExperiments { experiment in
            guard let variableID = experiment["key"]?.string.flatMap({ variables[Identifier($0)] }) else {
                return experiment
            }
            return Self.served(experiment, variableID: variableID, values, &written)
        }
        return editor.value != former
    }

    /// The values that variations of served experiments give, in the order of the datafile, by the variation's id.
    ///
    /// SDKs keep the values of a variation by its id alone, so where experiments share one, those of the last
    /// experiment hold. So the last one has the values of all: a flag finds its own by its variable.
    private struct VariationValues {
        /// Of the ids that several variations have.
        private(set) var shared: [Identifier: [JSONValue]] = [:]

        init(of experiments: [JSONObject], variables: [Identifier: String]) {
            var known: Set<Identifier> = []
            Self.forEachVariation(of: experiments, variables) { id, _, _ in
                if !known.insert(id).inserted { shared[id] = [] }
            }
            guard !shared.isEmpty else { return }
            Self.forEachVariation(of: experiments, variables) { id, variation, variableID in
                shared[id]?.append(ServedExperiments.value(of: variation, variableID: variableID))
            }
        }

        private static func forEachVariation(
            of experiments: [JSONObject], _ variables: [Identifier: String],
            _ body: (Identifier, JSONObject, String) -> Void
        ) {
            for experiment in experiments {
                guard let variableID = experiment["key"]?.string.flatMap({ variables[Identifier($0)] }) else {
                    continue
                }
                for variation in experiment["variations"]?.array ?? [] {
                    guard let variation = variation.object else { continue }
                    body(Identifier(variation["id"]?.string ?? ""), variation, variableID)
                }
            }
        }
    }

    /// Earlier releases marked nothing. Their experiments are known by the campaign, which they named like the
    /// experiment, in projects that the API made, whose account is named like the project.
    private static func isServed(_ experiment: JSONObject, isOwnProject: Bool) -> Bool {
        if let annotations = experiment[Annotations.member]?.object {
            if let isServed = annotations["served"]?.bool { return isServed }
            if annotations["flag"] != nil { return false }
        }
        return isOwnProject && experiment["layerId"] == experiment["id"]
    }

    /// Whether a flag is as ``flag(serving:id:variableID:_:)`` would make it.
    private static func serves(_ flag: JSONObject, id: String, variableID: String) -> Bool {
        guard flag["id"] != nil, flag["rolloutId"] == "", let ids = flag["experimentIds"]?.array, ids.count == 1,
            ids[0] == .string(id), let variables = flag["variables"]?.array, variables.count == 1,
            let variable = variables[0].object
        else { return false }
        return variable.count == 4 && variable["id"] == .string(variableID) && variable["key"] == "value"
            && variable["type"] == "string" && variable["defaultValue"] == ""
    }

    private static func flag(
        serving key: String, id: String, variableID: String, _ former: JSONObject?
    ) -> JSONObject {
        var flag = former ?? JSONObject()
        flag["id"] = flag["id"] ?? .string(DerivedID.of("flag/\(key)"))
        flag["key"] = .string(key)
        flag["rolloutId"] = ""
        flag["experimentIds"] = [.string(id)]
        flag["variables"] = [
            ["id": .string(variableID), "key": "value", "type": "string", "defaultValue": ""]
        ]
        flag[Annotations.member] = flag[Annotations.member] ?? ["experiment": true]
        return flag
    }

    /// Returns the experiment with the values of its variations.
    ///
    /// - Parameter written: how many variations of each id have their values already.
    private static func served(
        _ experiment: JSONObject, variableID: String, _ values: VariationValues, _ written: inout [Identifier: Int]
    ) -> JSONObject {
        let variations = experiment["variations"]?.array ?? []
        var changed: [JSONValue] = []
        for element in variations {
            guard var variation = element.object else { continue }
            let id = Identifier(variation["id"]?.string ?? "")
            var given: [JSONValue]?
            if let all = values.shared[id] {
                written[id, default: 0] += 1
                if written[id] == all.count { given = all }
            }
            let isServed =
                variation["featureEnabled"] == true
                && (given.map { variation["variables"] == .array($0) } ?? gives(variation, only: variableID))
            if isServed {
                changed.append(element)
                continue
            }
            variation["featureEnabled"] = true
            variation["variables"] = .array(given ?? [value(of: variation, variableID: variableID)])
            changed.append(.object(variation))
        }
        // What stays shares its storage with the former datafile, so that it is found unchanged at once.
        guard changed != variations || experiment["variations"] == nil else { return experiment }
        var prepared = experiment
        prepared["variations"] = .array(changed)
        return prepared
    }

    /// Whether a variation has this variable, with its key as value, and no other.
    private static func gives(_ variation: JSONObject, only variableID: String) -> Bool {
        guard let variables = variation["variables"]?.array, variables.count == 1, let value = variables[0].object
        else { return false }
        return value.count == 2 && value["id"] == .string(variableID) && value["value"] == (variation["key"] ?? "")
    }

    private static func value(of variation: JSONObject, variableID: String) -> JSONValue {
        ["id": .string(variableID), "value": variation["key"] ?? ""]
    }
}

/// The revision of the datafile in which each flag of the API last changed.
enum FlagVersions {
    /// Sets the version of each flag that differs from the former datafile, or whose rules do, to the new revision.
    static func stamp(_ editor: inout DatafileEditor, former: DatafileEditor?) {
        guard let revision = editor.value.object?["revision"]?.string.flatMap({ Int64($0) }) else { return }
        let before = former.map(Parts.init)
        let now = Parts(editor)
        for flag in now.flags.values where before?.parts(of: flag) != now.parts(of: flag) {
            // Of most flags nothing has changed, and the version need not be left out to see that.
            guard before?.of(flag) != now.of(flag) else { continue }
            var flag = flag
            var annotations = flag[Annotations.member]?.object ?? JSONObject()
            annotations["version"] = nil
            annotations["version"] = .integer(revision)
            flag[Annotations.member] = .object(annotations)
            editor.set(flag, in: .flags, by: "key")
        }
    }

    /// The parts of a datafile that flags consist of.
    private struct Parts {
        /// The flags of the API, by key.
        var flags: [Identifier: JSONObject] = [:]
        private var experiments: [Identifier: JSONObject] = [:]
        private var rollouts: [Identifier: JSONObject] = [:]

        init(_ editor: DatafileEditor) {
            for flag in editor.elements(of: .flags) where flag[Annotations.member]?.object != nil {
                flags[Identifier(flag["key"]?.string ?? "")] = flag
            }
            guard !flags.isEmpty else { return }
            for experiment in editor.experiments {
                experiments[Identifier(experiment["id"]?.string ?? "")] = experiment
            }
            for rollout in editor.elements(of: .rollouts) {
                rollouts[Identifier(rollout["id"]?.string ?? "")] = rollout
            }
        }

        /// Returns what the flag of this key consists of.
        func parts(of flag: JSONObject) -> [JSONObject?]? {
            guard let flag = flags[Identifier(flag["key"]?.string ?? "")] else { return nil }
            let rollout = flag["rolloutId"]?.string.flatMap { rollouts[Identifier($0)] }
            var parts = [flag, rollout]
            for id in flag["experimentIds"]?.array ?? [] {
                if let id = id.string { parts.append(experiments[Identifier(id)]) }
            }
            return parts
        }

        /// Returns what the flag of this key consists of, without the version.
        func of(_ flag: JSONObject) -> [JSONObject?]? {
            guard var parts = parts(of: flag) else { return nil }
            var annotations = parts[0]?[Annotations.member]?.object
            annotations?["version"] = nil
            parts[0]?[Annotations.member] = annotations.map { .object($0) }
            return parts
        }
    }
}
