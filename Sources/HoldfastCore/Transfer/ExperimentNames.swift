public import Bucketing
public import Definitions
import JSON

/// Finds experiments and variations by the names that data of other systems use: a key, an id, or the position of a
/// variation in the list.
public struct ExperimentNames: Sendable {
    private let datafiles: [Datafile]

    /// - Parameter sdkKey: the project whose experiments are found; `nil` for those of all projects.
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

    /// Returns the variation with a key, or else with an id, or else at an index in the list of variations, from 0.
    ///
    /// - Throws: 422 with the existing variations if there is none.
    static func variation(
        _ name: Identifier, of experiment: Experiment, allowsPlace: Bool
    ) throws(CoreError) -> Variation {
        if let variation = experiment.variation(key: name) ?? experiment.variation(id: name) { return variation }
        if allowsPlace, let place = Int(name.string), experiment.variations.indices.contains(place) {
            return experiment.variations[place]
        }
        let known = experiment.variations.map { "\($0.key) (id \($0.id))" }.joined(separator: ", ")
        let found = name.string.shortened(to: CoreError.longestQuote)
        throw CoreError(
            .unprocessable, "the variation must be one of the experiment '\(experiment.key)': \(known); got '\(found)'")
    }

    /// Returns the ids of an experiment and its variation as an entry of a profile.
    ///
    /// - Throws: 400 if a profile cannot have these ids.
    static func entry(
        _ experiment: Experiment, _ variation: Variation
    ) throws(CoreError) -> (experimentID: Identifier, variationID: Identifier) {
        (
            try NameRule.checkExperimentID(experiment.id.string, at: nil),
            try ProfileInput.variationID(.string(variation.id.string), at: [])
        )
    }
}
