public import JSON

/// Changes single experiments in a datafile and leaves all else as it is, unknown members included.
///
/// What comes out has still to be compiled, which finds what is wrong with it.
public struct DatafileEditor: Sendable {
    private var root: JSONObject

    /// A datafile without experiments.
    ///
    /// - Parameter projectID: used for the account too.
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

    /// The datafile as it now is.
    public var value: JSONValue { .object(root) }

    /// Counts the revision up; one that is no number becomes 1.
    public mutating func raiseRevision() {
        let revision = root["revision"]?.string.flatMap { Int64($0) } ?? 0
        let (raised, overflow) = revision.addingReportingOverflow(1)
        root["revision"] = .string(overflow ? "1" : String(raised))
    }
}

// MARK: - Experiments

extension DatafileEditor {
    /// The experiment with a key, alone or in a group; of several the last, which is the one that counts.
    public func experiment(key: Identifier) -> JSONObject? {
        place(of: key).flatMap { object(at: $0) }
    }

    /// Puts an experiment in the place of the one with the same key, or else at the end.
    public mutating func setExperiment(_ experiment: JSONObject) {
        guard let key = experiment["key"]?.string, let place = place(of: Identifier(key)) else {
            var experiments = root["experiments"]?.array ?? []
            experiments.append(.object(experiment))
            root["experiments"] = .array(experiments)
            return
        }
        edit(place) { experiments, index in
            experiments[index] = .object(experiment)
        }
    }

    /// Where an experiment stands: in a group, or in the datafile's own list.
    private struct Place {
        var group: Int?
        var index: Int
    }

    private func place(of key: Identifier) -> Place? {
        func index(in experiments: JSONValue?) -> Int? {
            experiments?.array?.lastIndex { $0.object?["key"] == .string(key.string) }
        }
        let groups = root["groups"]?.array ?? []
        for (number, group) in groups.enumerated().reversed() {
            if let index = index(in: group.object?["experiments"]) { return Place(group: number, index: index) }
        }
        return index(in: root["experiments"]).map { Place(group: nil, index: $0) }
    }

    private func object(at place: Place) -> JSONObject? {
        let owner = place.group.flatMap { root["groups"]?.array?[$0].object } ?? root
        return owner["experiments"]?.array?[place.index].object
    }

    private mutating func edit(_ place: Place, _ change: (inout [JSONValue], Int) -> Void) {
        func edit(_ owner: inout JSONObject) {
            var experiments = owner["experiments"]?.array ?? []
            change(&experiments, place.index)
            owner["experiments"] = .array(experiments)
        }
        guard let group = place.group else { return edit(&root) }
        var groups = root["groups"]?.array ?? []
        var object = groups[group].object ?? JSONObject()
        edit(&object)
        groups[group] = .object(object)
        root["groups"] = .array(groups)
    }
}

// MARK: - Audiences

extension DatafileEditor {
    /// Puts an audience in the place of the one with the same id, or else at the end.
    public mutating func setTypedAudience(_ audience: JSONValue) {
        var audiences = root["typedAudiences"]?.array ?? []
        if let index = audiences.lastIndex(where: { $0.object?["id"] == audience.object?["id"] }) {
            audiences[index] = audience
        } else {
            audiences.append(audience)
        }
        root["typedAudiences"] = .array(audiences)
    }

    /// Takes an audience out; experiments that name it are left as they are.
    public mutating func removeTypedAudience(id: String) {
        guard let audiences = root["typedAudiences"]?.array else { return }
        root["typedAudiences"] = .array(audiences.filter { $0.object?["id"] != .string(id) })
    }
}
