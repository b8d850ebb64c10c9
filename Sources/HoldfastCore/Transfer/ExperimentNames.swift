public import Bucketing
public import Definitions
import JSON
import Storage

/// Finds experiments and variations by their names in the data of other systems: a key, an id, or the index of a
/// variation in the experiment's list.
public struct ExperimentNames: Sendable {
    private let datafiles: [Datafile]

    /// - Parameter sdkKey: the project in which experiments are searched; `nil` to search all projects.
    /// - Throws: 404 if there is no such project.
    public init(_ catalog: ProjectCatalog.Snapshot, sdkKey: String? = nil) throws(CoreError) {
        guard let sdkKey else {
            datafiles = catalog.projects.values.map(\.datafile)
            return
        }
        guard let project = catalog.projects[sdkKey] else {
            let known = catalog.projects.keys.sorted().joined(separator: ", ")
            throw CoreError(
                .notFound,
                "the SDK key must be one of the database's (\(known.isEmpty ? "none" : known)); got '\(sdkKey)'")
        }
        datafiles = [project.datafile]
    }

    public init(_ datafiles: [Datafile]) {
        self.datafiles = datafiles
    }

    /// Returns the experiment with a key, or else with an id; `nil` if there is none.
    ///
    /// - Throws: 422 if several projects have such an experiment.
    func experiment(_ name: Identifier) throws(CoreError) -> Experiment? {
        let found = datafiles.compactMap { $0.experiment(keyOrID: name) }
        guard Set(found.map(\.id)).count <= 1 else {
            throw CoreError(
                .unprocessable,
                "the experiment '\(name)' must be in one project; it is in several: name one by its SDK key (--sdk-key)"
            )
        }
        return found.first
    }

    /// Returns the variation with a key, or else with an id, or else at an index in the experiment's list.
    ///
    /// - Parameter allowsIndex: whether the name may be an index, from 0.
    /// - Throws: 422 with the existing variations if there is no such variation.
    static func variation(
        _ name: Identifier, of experiment: Experiment, allowsIndex: Bool
    ) throws(CoreError) -> Variation {
        if let variation = experiment.variation(key: name) ?? experiment.variation(id: name) { return variation }
        if allowsIndex, let index = Int(name.string), experiment.variations.indices.contains(index) {
            return experiment.variations[index]
        }
        let known = experiment.variations.map { "\($0.key) (id \($0.id))" }.joined(separator: ", ")
        let found = name.string.shortened(to: CoreError.longestQuote)
        throw CoreError(
            .unprocessable, "the variation must be one of the experiment '\(experiment.key)': \(known); got '\(found)'")
    }

    /// Returns an assignment to a variation.
    ///
    /// - Throws: 400 if a profile cannot have the ids, which may come from a datafile of an earlier release.
    static func entry(
        _ experiment: Experiment, _ variation: Variation
    ) throws(CoreError) -> ExperimentBucketMap.Entry {
        ExperimentBucketMap.Entry(
            experimentID: try NameRule.checkExperimentID(experiment.id.string, at: nil),
            variationID: try ProfileInput.variationID(.string(variation.id.string), at: []))
    }
}
