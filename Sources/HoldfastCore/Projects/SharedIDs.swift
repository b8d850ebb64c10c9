public import Bucketing
public import Definitions
import JSON

/// Whether an edit may use the ids of experiments and holdouts of other projects. What is stored of users belongs to these
/// ids, so projects with an id in common have its users in common.
public enum SharePolicy: Sendable {
    /// Refuses it, and names the other projects that the caller may use.
    case refuse(ProjectAccess)
    case allow
}

extension ProjectCatalog.Snapshot {
    /// Checks that what an edit adds to a project has ids of its own. What is shared already may stay.
    ///
    /// - Parameter former: the datafile before the edit; `nil` if there is none.
    /// - Returns: the newest datafile of all projects, which must still be the newest when the edit is stored; `nil` if the
    ///   edit adds nothing.
    /// - Throws: 409 if another project has an id, whatever the status there.
    public func checkIDs(
        of edited: Datafile, replacing former: Datafile?, in sdkKey: String, _ policy: SharePolicy
    ) throws(CoreError) -> Int64? {
        let added = DefinedIDs(edited, besides: former)
        guard !added.isEmpty, case .refuse(let access) = policy else { return nil }
        for project in projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) where project.sdkKey != sdkKey {
            let shared = added.shared(with: DefinedIDs(project.datafile))
            guard let first = shared.first else { continue }
            let list = shared.prefix(5).map { "'\($0)'" }.joined(separator: ", ")
            let rest = shared.count > 5 ? " and \(shared.count - 5) more" : ""
            let key = edited.experiment(id: first)?.key ?? edited.holdout(keyOrID: first)?.key ?? first
            let owner =
                access.allows(project.sdkKey) ? "the project '\(project.sdkKey)'" : "another project of this server"
            let remedy =
                access == .all ? "leave ids out, or repeat the request with ?share=allow" : "leave ids out"
            let ids = shared.count == 1 ? "the id \(list)" : "the ids \(list)\(rest)"
            throw CoreError(
                .conflict,
                "the id of an experiment or holdout must belong to one project, because users' assignments belong to it; "
                    + "\(owner) has \(ids), of '\(key)' here: \(remedy)", at: ["id"], about: .sharedID)
        }
        return version
    }

    /// Names the ids of experiments and holdouts that several projects have; `nil` if there are none.
    public var sharedIDsWarning: String? {
        var owners: [Identifier: [String]] = [:]
        for project in projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) {
            for id in DefinedIDs(project.datafile).owned { owners[id, default: []].append(project.sdkKey) }
        }
        let shared = owners.filter { $0.value.count > 1 }.sorted { $0.key < $1.key }
        guard !shared.isEmpty else { return nil }
        let list = shared.prefix(5).map { "'\($0.key)' (\($0.value.joined(separator: ", ")))" }.joined(separator: ", ")
        let rest = shared.count > 5 ? " and \(shared.count - 5) more" : ""
        return
            "the id of an experiment or holdout should belong to one project; several have \(list)\(rest): assignments, "
            + "overrides and exposures of one are those of the other"
    }
}

/// The ids of a datafile's elements that have users.
private struct DefinedIDs {
    /// Of experiments and holdouts.
    var owned: Set<Identifier> = []
    /// Of targeted rollouts. They have no stored users, so projects may share them, but are found like experiments.
    var rules: Set<Identifier> = []

    var isEmpty: Bool { owned.isEmpty && rules.isEmpty }

    /// - Parameter former: what it has already is left out.
    init(_ datafile: Datafile, besides former: Datafile? = nil) {
        for experiment in former.map({ datafile.experiments(unlike: $0) }) ?? datafile.experiments {
            let id = experiment.id
            if datafile.isDeliveryRule(id) {
                if former?.experiment(id: id) == nil, former?.hasHoldout(id) != true { rules.insert(id) }
            } else if former?.experiment(id: id) == nil || former?.isDeliveryRule(id) == true,
                former?.hasHoldout(id) != true
            {
                owned.insert(id)
            }
        }
        for id in datafile.holdouts.map(\.id) where former?.hasHoldout(id) != true {
            if former?.experiment(id: id) == nil || former?.isDeliveryRule(id) == true { owned.insert(id) }
        }
    }

    func shared(with other: DefinedIDs) -> [Identifier] {
        owned.filter { other.owned.contains($0) || other.rules.contains($0) }
            .union(rules.intersection(other.owned)).sorted()
    }
}

extension Datafile {
    fileprivate func hasHoldout(_ id: Identifier) -> Bool { holdouts.contains { $0.id == id } }
}
