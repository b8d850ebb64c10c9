public import Bucketing
import Definitions
import JSON
public import Storage

/// Removes an erased user from the whitelists (forced variations) in the active datafiles of all projects.
public struct WhitelistEraser: Sendable {
    private let catalog: ProjectCatalog

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Removes the user from all whitelists.
    ///
    /// The change needs no approval, and is made even if it moves the user to another variation, because nothing may
    /// prevent an erasure.
    ///
    /// - Returns: the SDK keys of the projects whose whitelists had the user.
    public func erase(_ userID: Identifier, by author: Author) async throws -> [String] {
        let projects = catalog.snapshot().projects.values.filter { !$0.whitelisted(userID).isEmpty }
        let sdkKeys = projects.map(\.sdkKey).sorted()
        for sdkKey in sdkKeys {
            // The audit log must not contain the id of an erased user, so the note has no details.
            let note = ProjectEditor.Note(.datafilePut, of: sdkKey) { _ in .null }
            _ = try await ProjectEditor(catalog, .notNeeded).edit(sdkKey, note, by: author, moves: .allow) {
                definitions, _ throws(CoreError) in
                definitions.removeFromWhitelists(userID)
            }
        }
        return sdkKeys
    }
}

extension Project {
    /// Returns the experiments whose whitelist has a user, with the variations.
    fileprivate func whitelisted(_ userID: Identifier) -> [(experiment: Identifier, variation: Identifier)] {
        datafile.experiments.compactMap { experiment in
            experiment.forcedVariations[userID].map { (experiment.key, $0) }
        }
    }
}

extension ProjectView {
    /// Returns the experiments of all projects whose whitelist has a user, with the variations.
    public func whitelisted(
        _ userID: Identifier
    ) -> [(sdkKey: String, experiment: Identifier, variation: Identifier)] {
        records(for: .all).compactMap { project($0.sdkKey) }.flatMap { project in
            project.whitelisted(userID).map { (project.sdkKey, $0.experiment, $0.variation) }
        }
    }
}

extension ProjectDefinitions {
    /// Removes a user from the whitelists of experiments and of the rules of rollouts.
    fileprivate mutating func removeFromWhitelists(_ userID: Identifier) {
        for var experiment in experiments {
            guard let source = experiment.source.withoutWhitelisted(userID) else { continue }
            experiment.source = source
            experiments.set(experiment)
        }
        rollouts = rollouts.map { element in
            guard var rollout = element.object, let rules = rollout["experiments"]?.array else { return element }
            let changed = rules.map { rule in rule.object?.withoutWhitelisted(userID).map { .object($0) } ?? rule }
            guard changed != rules else { return element }
            rollout["experiments"] = .array(changed)
            return .object(rollout)
        }
    }
}

extension JSONObject {
    /// Returns the JSON of an experiment without a user in its whitelist; `nil` if the user is not in the whitelist.
    fileprivate func withoutWhitelisted(_ userID: Identifier) -> JSONObject? {
        guard let whitelist = self["forcedVariations"]?.object else { return nil }
        let kept = whitelist.filter { Identifier($0.key) != userID }
        guard kept.count < whitelist.count else { return nil }
        var changed = self
        changed["forcedVariations"] = .object(JSONObject(kept))
        return changed
    }
}
