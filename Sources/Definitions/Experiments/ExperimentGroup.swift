package import Bucketing
import JSON

/// Mutual exclusion: the experiments of a named group share the traffic, so that a user is enrolled in at most one. In
/// the datafile this is a group with the policy `random`, whose allocation gives each experiment its traffic.
package struct ExperimentGroup: KeyedDefinition {
    package let id: Identifier
    /// `nil` for a group of an uploaded datafile, which the API does not change.
    package let name: String?
    /// Divides the bucket values among the experiments.
    package var allocation: TrafficAllocation
    /// The JSON object from the datafile, without the members that are generated.
    let source: JSONObject

    package var listKey: Identifier { id }
    package var names: [Identifier] { name.map { [Identifier($0)] } ?? [] }

    init(_ source: JSONObject) {
        id = source.identifier("id") ?? ""
        name = source[Annotations.member]?.object?["name"]?.string
        allocation = source["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) } ?? .empty
        var rest = source
        rest["experiments"] = []
        if name != nil { rest["trafficAllocation"] = [] }
        self.source = rest
    }

    init(named name: String) {
        let source: JSONValue = [
            "id": .string(DerivedID.of("group/\(name)")), "policy": "random", "experiments": [],
            "trafficAllocation": [], Annotations.member: ["name": .string(name)],
        ]
        self.init(source.object ?? JSONObject())
    }

    /// Returns the group in the format of a datafile.
    func json(_ experiments: [JSONValue]) -> JSONValue {
        var object = source
        object["experiments"] = .array(experiments)
        if name != nil { object["trafficAllocation"] = allocation.json }
        return .object(object)
    }
}

extension ProjectDefinitions {
    package func group(of experiment: ExperimentDefinition?) -> ExperimentGroup? {
        experiment?.groupID.flatMap { groups[$0] }
    }

    /// Sets an experiment that stays in its group, and divides the traffic of the group anew, because that of the
    /// experiment may have changed.
    ///
    /// - Throws: 422 if the experiments of the group would have more than 100% of the traffic.
    package mutating func set(_ experiment: ExperimentDefinition) throws(CoreError) {
        experiments.set(experiment)
        if let id = experiment.groupID { try allocateGroup(id) }
    }

    /// Sets an experiment, moves it into a named group or out of all groups, and divides the traffic of both groups
    /// anew. As few bucket values as possible move to another experiment.
    ///
    /// - Parameter name: the group; it is created if there is none with the name. `nil` for no group.
    /// - Throws: 422 if the experiments of the group would have more than 100% of the traffic.
    package mutating func set(_ experiment: ExperimentDefinition, inGroup name: String?) throws(CoreError) {
        var experiment = experiment
        let former = experiment.groupID
        let group = name.map { groups.last(naming: Identifier($0)) ?? ExperimentGroup(named: $0) }
        if let group { groups.set(group) }
        if former != group?.id {
            experiments.remove(experiment.key)
            experiment.groupID = group?.id
        }
        experiments.set(experiment)
        if let group { try allocateGroup(group.id) }
        if let former, former != group?.id { try allocateGroup(former) }
    }

    /// Divides the bucket values of a named group among its experiments by their traffic. Removes a group without
    /// experiments.
    ///
    /// While ``unallocatedGroups`` is set, only adds the group to it: a file changes several experiments of a group,
    /// and the sum of their traffic is checked once all have changed.
    ///
    /// - Throws: 422 if the experiments would have more than 100% of the traffic.
    package mutating func allocateGroup(_ id: Identifier) throws(CoreError) {
        if unallocatedGroups != nil {
            unallocatedGroups?.insert(id)
            return
        }
        guard var group = groups[id], let name = group.name else { return }
        let members = experiments.filter { $0.groupID == id }.map { experiment in
            (key: experiment.key, weight: TrafficAllocation.Weight(entityID: experiment.id, weight: experiment.share))
        }
        guard !members.isEmpty else { return groups.remove(id) }
        let total = members.reduce(0) { $0 + $1.weight.weight }
        guard total <= Bucketer.bucketCount else {
            let list = members.filter { $0.weight.weight > 0 }.map {
                "'\($0.key)' \(Self.percentage($0.weight.weight))"
            }
            throw CoreError(
                .unprocessable,
                "the experiments of the group '\(name)' must have at most 100% of the traffic together; got "
                    + "\(Self.percentage(total)): \(list.joined(separator: ", "))", at: ["traffic"])
        }
        group.allocation = group.allocation.reallocated(to: members.map(\.weight))
        groups.set(group)
    }

    /// Returns hundredths of a percent as a text, such as `12.5%`.
    private static func percentage(_ share: Int) -> String {
        let number = Double(share) / 100
        return Int(exactly: number).map { "\($0)%" } ?? "\(number)%"
    }
}

extension ExperimentDefinition {
    /// The experiment's part of its group, in hundredths of a percent. An experiment that has ended needs none.
    fileprivate var share: Int {
        isArchived || isConcluded ? 0 : Int((min(max(traffic ?? 0, 0), 100) * 100).rounded())
    }
}
