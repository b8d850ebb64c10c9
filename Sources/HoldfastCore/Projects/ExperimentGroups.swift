public import Bucketing
import JSON

/// Mutual exclusion: the experiments of a named group share the traffic, so that a user is enrolled in at most one. In
/// the datafile this is a group with the policy `random`, whose allocation gives each experiment its traffic.
extension ExperimentDefinition {
    /// Where an experiment is to be.
    enum GroupPlace {
        case outside
        /// A group that a datafile brought.
        case unnamed(id: String)
        case named(String)

        var hasName: Bool {
            if case .named = self { true } else { false }
        }
    }

    /// The share of the bucket values in hundredths of a percent, as allocations count it.
    private struct Member {
        var id: String
        var key: String
        var share: Int
    }

    /// - Throws: 409 if the experiment would leave a group that a datafile brought.
    func groupAfterwards(in editor: DatafileEditor) throws(CoreError) -> GroupPlace {
        var present = GroupPlace.outside
        if let group = editor.group(ofExperiment: Identifier(key)) {
            present = Self.name(of: group).map { .named($0) } ?? .unnamed(id: group["id"]?.string ?? "")
        }
        guard let group else { return present }
        if case .unnamed(let id) = present {
            throw CoreError(
                .conflict, "`group` must be changed in the datafile, which has '\(key)' in its group '\(id)'",
                at: ["group"])
        }
        return group
    }

    /// Moves the experiment into its group, and gives each experiment of the groups that change its traffic. As few
    /// bucket values as possible move to another experiment.
    ///
    /// - Throws: 422 if the experiments of the group would have more than 100% of the traffic.
    func moveExperiment(to place: GroupPlace, in editor: inout DatafileEditor) throws(CoreError) {
        let former = editor.group(ofExperiment: Identifier(key)).flatMap(Self.name)
        switch place {
        case .unnamed: return
        case .outside:
            if former != nil { editor.moveExperiment(key: Identifier(key), toGroup: nil) }
        case .named(let name):
            if former != name {
                if Self.group(named: name, in: editor) == nil { editor.set(Self.group(name), in: .groups, by: "id") }
                editor.moveExperiment(
                    key: Identifier(key), toGroup: Self.group(named: name, in: editor)?["id"]?.string)
            }
            try Self.allocate(name, in: &editor)
        }
        if let former, place.name != former { try Self.allocate(former, in: &editor) }
    }

    /// Archives an experiment: nobody is enrolled any more, and its traffic is free for the others of its group.
    public static func archive(_ key: Identifier, in editor: inout DatafileEditor) throws(CoreError) {
        guard var experiment = editor.experiment(key: key) else { return }
        experiment["status"] = ExperimentStatus.archived.json
        editor.setExperiment(experiment)
        if let name = editor.group(ofExperiment: key).flatMap(name) { try allocate(name, in: &editor) }
    }

    private static func group(_ name: String) -> JSONObject {
        var group = JSONObject()
        group["id"] = .string(DerivedID.of("group/\(name)"))
        group["policy"] = "random"
        group["experiments"] = []
        group["trafficAllocation"] = []
        group[Annotations.member] = ["name": .string(name)]
        return group
    }

    private static func name(of group: JSONObject) -> String? {
        group[Annotations.member]?.object?["name"]?.string
    }

    private static func group(named name: String, in editor: DatafileEditor) -> JSONObject? {
        editor.elements(of: .groups).last { Self.name(of: $0) == name }
    }

    /// Divides the traffic of a group anew. Removes a group without experiments.
    private static func allocate(_ name: String, in editor: inout DatafileEditor) throws(CoreError) {
        guard var group = group(named: name, in: editor) else { return }
        let members = (group["experiments"]?.array ?? []).compactMap(\.object).map { experiment in
            let traffic = experiment[Annotations.member]?.object?["traffic"]?.double ?? 0
            return Member(
                id: experiment["id"]?.string ?? "", key: experiment["key"]?.string ?? "",
                share: experiment["status"] == ExperimentStatus.archived.json
                    ? 0 : Int((min(max(traffic, 0), 100) * 100).rounded()))
        }
        guard !members.isEmpty else {
            return editor.remove(from: .groups, "id", group["id"]?.string ?? "")
        }
        let total = members.reduce(0) { $0 + $1.share }
        guard total <= Bucketer.bucketCount else {
            let list = members.filter { $0.share > 0 }.map { "'\($0.key)' \(percentage($0.share))" }
            throw CoreError(
                .unprocessable,
                "the experiments of the group '\(name)' must have at most 100% of the traffic together; got "
                    + "\(percentage(total)): \(list.joined(separator: ", "))", at: ["traffic"])
        }
        let allocation = group["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) }
        let weights = members.map { TrafficAllocation.Weight(entityID: Identifier($0.id), weight: $0.share) }
        group["trafficAllocation"] = (allocation ?? TrafficAllocation(ranges: [])).reallocated(to: weights).json
        editor.set(group, in: .groups, by: "id")
    }

    private static func percentage(_ share: Int) -> String {
        let number = Double(share) / 100
        return Int(exactly: number).map { "\($0)%" } ?? "\(number)%"
    }
}

extension ExperimentDefinition.GroupPlace {
    fileprivate var name: String? {
        if case .named(let name) = self { name } else { nil }
    }
}
