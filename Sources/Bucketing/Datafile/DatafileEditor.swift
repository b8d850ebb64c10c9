public import JSON

/// Edits experiments and audiences of a datafile and keeps everything else, including unknown members.
///
/// The result is not validated; compiling it as a ``Datafile`` does that.
public struct DatafileEditor: Sendable {
    private var root: JSONObject

    /// Creates a datafile without experiments.
    ///
    /// - Parameter projectID: also used as the account id.
    public init(projectID: String, sdkKey: String? = nil) {
        root = JSONObject()
        root["version"] = "4"
        root["accountId"] = .string(projectID)
        root["projectId"] = .string(projectID)
        root["revision"] = "0"
        root["sdkKey"] = sdkKey.map { .string($0) }
        for list in ["groups", "experiments", "events", "attributes", "audiences", "typedAudiences"] {
            root[list] = []
        }
        for list in ["featureFlags", "rollouts", "holdouts", "localHoldouts"] {
            root[list] = []
        }
    }

    public init(_ datafile: Datafile) {
        root = datafile.source.object ?? JSONObject()
    }

    /// The edited datafile.
    public var value: JSONValue { .object(root) }

    /// Increments the revision. A revision that is not a number becomes 1.
    public mutating func incrementRevision() {
        let revision = root["revision"]?.string.flatMap { Int64($0) } ?? 0
        let (incremented, overflow) = revision.addingReportingOverflow(1)
        root["revision"] = .string(overflow ? "1" : String(incremented))
    }
}

// MARK: - Experiments

extension DatafileEditor {
    /// Returns the experiment with a key, in a group or outside; the last one if there are several, as in the reference
    /// SDK.
    public func experiment(key: Identifier) -> JSONObject? {
        position(of: key).flatMap { object(at: $0) }
    }

    /// Replaces the experiment with the same key, or appends the experiment.
    public mutating func setExperiment(_ experiment: JSONObject) {
        guard let key = experiment["key"]?.string, let position = position(of: Identifier(key)) else {
            var experiments = root["experiments"]?.array ?? []
            experiments.append(.object(experiment))
            root["experiments"] = .array(experiments)
            return
        }
        edit(position) { experiments, index in
            experiments[index] = .object(experiment)
        }
    }

    /// The position of an experiment, in a group or in the datafile's own list.
    private struct Position {
        var group: Int?
        var index: Int
    }

    private func position(of key: Identifier) -> Position? {
        func index(in experiments: JSONValue?) -> Int? {
            experiments?.array?.lastIndex { $0.object?["key"] == .string(key.string) }
        }
        let groups = root["groups"]?.array ?? []
        for (number, group) in groups.enumerated().reversed() {
            if let index = index(in: group.object?["experiments"]) { return Position(group: number, index: index) }
        }
        return index(in: root["experiments"]).map { Position(group: nil, index: $0) }
    }

    private func object(at position: Position) -> JSONObject? {
        let owner = position.group.flatMap { root["groups"]?.array?[$0].object } ?? root
        return owner["experiments"]?.array?[position.index].object
    }

    private mutating func edit(_ position: Position, _ change: (inout [JSONValue], Int) -> Void) {
        func edit(_ owner: inout JSONObject) {
            var experiments = owner["experiments"]?.array ?? []
            change(&experiments, position.index)
            owner["experiments"] = .array(experiments)
        }
        guard let group = position.group else { return edit(&root) }
        var groups = root["groups"]?.array ?? []
        var object = groups[group].object ?? JSONObject()
        edit(&object)
        groups[group] = .object(object)
        root["groups"] = .array(groups)
    }
}

// MARK: - Audiences

extension DatafileEditor {
    /// Replaces the typed audience with the same id, or appends the audience.
    public mutating func setTypedAudience(_ audience: JSONValue) {
        var audiences = root["typedAudiences"]?.array ?? []
        if let index = audiences.lastIndex(where: { $0.object?["id"] == audience.object?["id"] }) {
            audiences[index] = audience
        } else {
            audiences.append(audience)
        }
        root["typedAudiences"] = .array(audiences)
    }

    /// Removes a typed audience. Experiments that refer to it are left unchanged.
    public mutating func removeTypedAudience(id: String) {
        guard let audiences = root["typedAudiences"]?.array else { return }
        root["typedAudiences"] = .array(audiences.filter { $0.object?["id"] != .string(id) })
    }
}
