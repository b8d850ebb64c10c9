public import Bucketing
public import Definitions
public import JSON
import Storage

/// The definition of an experiment at the time when its results were frozen. The store keeps it with the results, so
/// that they do not change with later definitions.
public struct FrozenExperiment: Sendable {
    public let experiment: Experiment
    /// The keys of former variations, by id.
    public let retiredVariations: [Identifier: Identifier]

    /// - Parameter definition: see ``definition(of:)``.
    /// - Throws: 503 if the stored definition does not compile.
    public init(_ definition: JSONValue) throws(CoreError) {
        var datafile = Datafile.empty(projectID: "", sdkKey: nil).object ?? JSONObject()
        datafile["experiments"] = [definition]
        guard let compiled = try? Datafile.usable(.object(datafile)), let experiment = compiled.experiments.first else {
            throw CoreError(.unavailable, "the frozen definition of the experiment is not usable by this release")
        }
        self.experiment = experiment
        retiredVariations = ProjectDefinitions(compiled).retiredVariations(of: experiment)
    }

    /// Returns the definition of an experiment to store with its frozen results.
    ///
    /// The whitelist is left out, so that user ids are not kept. Audiences are left out, because they refer to other
    /// parts of the datafile, and results do not need them.
    static func definition(of source: JSONObject) -> JSONValue {
        var definition = source
        definition["forcedVariations"] = [:]
        definition["audienceIds"] = []
        definition["audienceConditions"] = nil
        return .object(definition)
    }
}

extension ProjectDefinitions {
    /// Returns the experiments that a change of the definitions concludes. The store freezes their results with the
    /// change.
    ///
    /// - Parameters:
    ///   - former: the definitions before the change; `nil` if there are none.
    ///   - edit: the elements that differ; `nil` to compare all experiments.
    func freezes(since former: ProjectDefinitions?, _ edit: DatafileEdit? = nil) -> [ResultsFreeze] {
        let candidates = edit.map { experiments.elements(at: $0.experiments) } ?? Array(experiments)
        return candidates.compactMap { experiment in
            guard let time = experiment.conclusion?.frozenAt,
                former?.experiments[experiment.key]?.conclusion?.frozenAt != time
            else { return nil }
            return ResultsFreeze(
                experimentID: experiment.id, frozenAt: time,
                definition: FrozenExperiment.definition(of: experiment.source))
        }
    }
}
