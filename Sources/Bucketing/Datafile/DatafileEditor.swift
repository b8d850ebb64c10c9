public import JSON

/// Edits experiments, flags and audiences of a datafile and keeps everything else, including unknown members.
///
/// The result is not validated; compiling it as a ``Datafile`` does that.
public struct DatafileEditor: Sendable {
    var root: JSONObject

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

    /// Changes all experiments, in groups and outside, in one pass.
    public mutating func changeExperiments(_ change: (JSONObject) -> JSONObject) {
        func edit(_ owner: inout JSONObject) {
            guard let experiments = owner["experiments"]?.array else { return }
            owner["experiments"] = .array(experiments.map { $0.object.map { .object(change($0)) } ?? $0 })
        }
        edit(&root)
        guard let groups = root["groups"]?.array else { return }
        root["groups"] = .array(
            groups.map { group in
                guard var object = group.object else { return group }
                edit(&object)
                return .object(object)
            })
    }

    /// Returns all experiments outside of groups, then those of groups.
    public var experiments: [JSONObject] {
        let grouped = (root["groups"]?.array ?? []).flatMap { $0.object?["experiments"]?.array ?? [] }
        return ((root["experiments"]?.array ?? []) + grouped).compactMap(\.object)
    }

    /// Returns the group that an experiment is in.
    public func group(ofExperiment key: Identifier) -> JSONObject? {
        position(of: key)?.group.flatMap { root["groups"]?.array?[$0].object }
    }

    /// Moves an experiment to the end of a group, or of the experiments outside of groups.
    ///
    /// - Parameter id: the id of a group that the datafile has; `nil` for no group.
    public mutating func moveExperiment(key: Identifier, toGroup id: String?) {
        guard let position = position(of: key), let experiment = object(at: position) else { return }
        edit(position) { experiments, index in experiments.remove(at: index) }
        guard let id, var group = element(of: .groups, "id", id) else {
            root["experiments"] = .array((root["experiments"]?.array ?? []) + [.object(experiment)])
            return
        }
        group["experiments"] = .array((group["experiments"]?.array ?? []) + [.object(experiment)])
        set(group, in: .groups, by: "id")
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

// MARK: - Flags, rollouts, groups and audiences

extension DatafileEditor {
    /// The lists of a datafile whose elements are edited one by one.
    public enum List: String, Sendable {
        case flags = "featureFlags"
        case rollouts
        case groups
        case typedAudiences
    }

    /// Returns the elements of a list.
    public func elements(of list: List) -> [JSONObject] {
        (root[list.rawValue]?.array ?? []).compactMap(\.object)
    }

    /// Returns the last element of a list whose member has a text.
    public func element(of list: List, _ member: String, _ text: String) -> JSONObject? {
        root[list.rawValue]?.array?.last { $0.object?[member] == .string(text) }?.object
    }

    /// Replaces the last element with the same value of a member, or appends the element.
    public mutating func set(_ element: JSONObject, in list: List, by member: String) {
        var elements = root[list.rawValue]?.array ?? []
        if let index = elements.lastIndex(where: { $0.object?[member] == element[member] }) {
            elements[index] = .object(element)
        } else {
            elements.append(.object(element))
        }
        root[list.rawValue] = .array(elements)
    }

    /// Replaces the elements that have the same value of a member, or appends them, in one pass.
    public mutating func set(_ changed: [JSONObject], in list: List, by member: String) {
        guard !changed.isEmpty else { return }
        var elements = root[list.rawValue]?.array ?? []
        var indices: [Identifier: Int] = [:]
        for (index, element) in elements.enumerated() {
            if let value = element.object?[member]?.string { indices[Identifier(value)] = index }
        }
        for element in changed {
            if let index = element[member]?.string.flatMap({ indices[Identifier($0)] }) {
                elements[index] = .object(element)
            } else {
                elements.append(.object(element))
            }
        }
        root[list.rawValue] = .array(elements)
    }

    /// Replaces the typed audience with the same id, or appends the audience.
    public mutating func setTypedAudience(_ audience: JSONValue) {
        if let audience = audience.object { set(audience, in: .typedAudiences, by: "id") }
    }

    /// Removes the elements of a list whose member has a text. What refers to them is left unchanged.
    public mutating func remove(from list: List, _ member: String, _ text: String) {
        guard let elements = root[list.rawValue]?.array else { return }
        root[list.rawValue] = .array(elements.filter { $0.object?[member] != .string(text) })
    }
}
