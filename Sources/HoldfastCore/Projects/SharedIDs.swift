public import Bucketing
public import Definitions
import JSON

/// Whether an edit may add an experiment or a holdout whose id another project has.
///
/// Assignments, overrides and exposures are stored by these ids. So if two projects have an experiment with the same
/// id, the users of one are those of the other.
public enum SharePolicy: Sendable {
    /// Refuses the edit. The error names the other project only if the caller may use it.
    case refuse(ProjectAccess)
    /// Allows it, for projects that are meant to share an experiment.
    case allow
}

extension ProjectCatalog.Snapshot {
    /// Checks that the experiments and holdouts that an edit adds have ids that no other project has. An id that the
    /// project shares already may stay.
    ///
    /// - Parameters:
    ///   - edited: the datafile after the edit.
    ///   - former: the datafile before the edit; `nil` if there is none.
    /// - Returns: the version of the newest datafile of all projects. The result of the check holds only if this is
    ///   still the newest version when the edit is stored. `nil` if the edit adds no ids, so that nothing needs to be
    ///   checked.
    /// - Throws: 409 if another project has one of the ids, even for an archived experiment.
    public func checkIDs(
        of edited: Datafile, replacing former: Datafile?, in sdkKey: String, _ policy: SharePolicy
    ) throws(CoreError) -> Int64? {
        let added = DefinedIDs(edited, besides: former)
        guard !added.isEmpty, case .refuse(let access) = policy else { return nil }
        for project in projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) where project.sdkKey != sdkKey {
            let shared = added.shared(with: DefinedIDs(project.datafile))
            guard let first = shared.first else { continue }
            let list = shared.prefix(Self.namedIDs).map { "'\($0)'" }.joined(separator: ", ")
            let rest = shared.count > Self.namedIDs ? " and \(shared.count - Self.namedIDs) more" : ""
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

    /// The maximum number of ids that a message names.
    private static let namedIDs = 5

    /// A warning that names the ids of experiments and holdouts that several projects have; `nil` if there are none.
    public var sharedIDsWarning: String? {
        var owners: [Identifier: [String]] = [:]
        for project in projects.values.sorted(by: { $0.sdkKey < $1.sdkKey }) {
            for id in DefinedIDs(project.datafile).owned { owners[id, default: []].append(project.sdkKey) }
        }
        let shared = owners.filter { $0.value.count > 1 }.sorted { $0.key < $1.key }
        guard !shared.isEmpty else { return nil }
        let list = shared.prefix(Self.namedIDs)
            .map { "'\($0.key)' (\($0.value.joined(separator: ", ")))" }.joined(separator: ", ")
        let rest = shared.count > Self.namedIDs ? " and \(shared.count - Self.namedIDs) more" : ""
        return
            "the id of an experiment or holdout should belong to one project; several have \(list)\(rest): assignments, "
            + "overrides and exposures of one are those of the other"
    }
}

/// The ids in a datafile by which data of users may be stored.
private struct DefinedIDs {
    /// The ids of experiments and holdouts.
    var owned: Set<Identifier> = []
    /// The ids of delivery rules. No data of users is stored for a delivery rule, so two projects may have the same
    /// one. But an experiment must not have the id of another project's delivery rule, because both are looked up by
    /// id.
    var rules: Set<Identifier> = []

    var isEmpty: Bool { owned.isEmpty && rules.isEmpty }

    /// Collects the ids of a datafile.
    ///
    /// - Parameter former: the datafile before an edit. Its ids are left out, except those of delivery rules that have
    ///   become experiments or holdouts.
    init(_ datafile: Datafile, besides former: Datafile? = nil) {
        let candidates = former.map { datafile.experiments(unlike: $0) } ?? datafile.experiments
        for id in candidates.map(\.id) {
            if datafile.isDeliveryRule(id) {
                let isNew = former.map { $0.experiment(id: id) == nil && !$0.hasHoldout(id) } ?? true
                if isNew { rules.insert(id) }
            } else if former?.ownsID(id) != true {
                owned.insert(id)
            }
        }
        for id in datafile.holdouts.map(\.id) where former?.ownsID(id) != true { owned.insert(id) }
    }

    /// Returns the ids that two projects must not have in common.
    func shared(with other: DefinedIDs) -> [Identifier] {
        owned.filter { other.owned.contains($0) || other.rules.contains($0) }
            .union(rules.intersection(other.owned)).sorted()
    }
}

extension Datafile {
    /// Whether the id belongs to an experiment or a holdout.
    fileprivate func ownsID(_ id: Identifier) -> Bool {
        let isExperiment = experiment(id: id) != nil && !isDeliveryRule(id)
        return isExperiment || hasHoldout(id)
    }

    fileprivate func hasHoldout(_ id: Identifier) -> Bool { holdouts.contains { $0.id == id } }
}
