public import Bucketing
import JSON

/// The definitions of a project, with the compiled datafile that is generated from them and makes the decisions.
public struct CompiledDefinitions: Sendable {
    public let definitions: ProjectDefinitions
    public let datafile: Datafile

    package init(_ definitions: ProjectDefinitions, _ datafile: Datafile) {
        self.definitions = definitions
        self.datafile = datafile
    }

    /// Reads the definitions of an uploaded or stored datafile.
    public init(_ datafile: Datafile) {
        self.init(ProjectDefinitions(datafile), datafile)
    }

    /// Reads a datafile that is stored whole.
    ///
    /// - Throws: 400 if the datafile is not usable, with every wrong member as `errors`.
    package init(_ content: [UInt8], similarTo former: CompiledDefinitions?) throws(CoreError) {
        try self.init(try Datafile.parsed(content), similarTo: former)
    }

    /// Reads a datafile that is stored in parts.
    ///
    /// - Parameter former: definitions that are probably similar, and their datafile. Parts that both have are not read
    ///   again.
    /// - Throws: 400 if the datafile is not usable, with every wrong member as `errors`.
    package init(
        _ parts: DatafileParts, similarTo former: (compiled: CompiledDefinitions, parts: DatafileParts)?
    ) throws(CoreError) {
        let formerDatafile = former.map { (root: $0.compiled.definitions.root, parts: $0.parts) }
        let value = try Datafile.document(parts, similarTo: formerDatafile)
        try self.init(value, similarTo: former?.compiled)
    }

    private init(_ value: JSONValue, similarTo former: CompiledDefinitions?) throws(CoreError) {
        let edit = former.flatMap { DatafileEdit(from: $0.definitions.root, to: value.object ?? JSONObject()) }
        let datafile = try Datafile.usable(value, similarTo: former?.datafile, edit)
        let definitions = edit.flatMap { former?.definitions.reading(value, $0) }
        self.init(definitions ?? ProjectDefinitions(value), datafile)
    }

    /// Returns the definitions of an upload with the assignment lifetime of the project. A datafile of another product
    /// does not have a lifetime, so the upload would otherwise remove that of the project.
    ///
    /// - Parameter lifetime: the lifetime of the project before the upload.
    /// - Returns: `nil` if the definitions have a lifetime already, or if the project had none.
    public func completed(with lifetime: AssignmentLifetime?) throws(CoreError) -> CompiledDefinitions? {
        guard let lifetime, datafile.assignmentLifetime == nil else { return nil }
        let completed = definitions.withAssignmentLifetime(lifetime)
        return CompiledDefinitions(completed, try Datafile.usable(completed.datafile, similarTo: datafile))
    }

    /// Changes definitions, and compiles the datafile that is generated from them.
    ///
    /// - Parameter former: the definitions before the change; `nil` for those of a new project.
    /// - Returns: the changed definitions, the result of `change`, and the difference between the datafiles, if it is
    ///   known. If the change makes no difference, the former definitions, and `hasChanged` is false.
    /// - Throws: the error of the change; 400 if the datafile would not be usable.
    package static func edited<Outcome>(
        _ former: CompiledDefinitions?, sdkKey: String,
        _ change: (inout ProjectDefinitions) throws(CoreError) -> Outcome
    ) throws(CoreError) -> (compiled: CompiledDefinitions, outcome: Outcome, hasChanged: Bool, edit: DatafileEdit?) {
        var formerDefinitions = former?.definitions
        // An uploaded datafile may lack the SDK key of its project. This alone is no change.
        formerDefinitions?.sdkKey = sdkKey
        var edited = formerDefinitions ?? ProjectDefinitions(projectID: sdkKey, sdkKey: sdkKey)
        let outcome = try change(&edited)
        edited.serveExperiments()
        if let former, let formerDefinitions, !edited.hasChanges(since: formerDefinitions) {
            return (former, outcome, false, nil)
        }
        edited.incrementRevision()
        let edit = edited.generate(since: formerDefinitions)
        let datafile = try Datafile.usable(edited.datafile, similarTo: former?.datafile, edit)
        return (CompiledDefinitions(edited, datafile), outcome, true, edit)
    }

    /// Returns the definitions as servers read them once edits have written every element. Writes every experiment and
    /// flag anew, takes the datafile apart, and reads the parts. A check of whether all decisions stay the same uses
    /// this.
    ///
    /// - Returns: `nil` if the datafile cannot be stored in parts, see ``Bucketing/DatafileParts/edited(to:since:)``.
    /// - Throws: 400 if the datafile would not be usable.
    package func adopted() throws(CoreError) -> CompiledDefinitions? {
        var written = try servingAll()?.definitions ?? definitions
        // The former definitions are the same, except that their elements have no JSON. So `generate` finds that each
        // element has changed, and writes it. But it finds no experiment that begins to run.
        var former = written
        former.generation = nil
        for var experiment in written.experiments {
            experiment.source = JSONObject()
            former.experiments.set(experiment)
        }
        for var flag in written.flags {
            flag.source = JSONObject()
            former.flags.set(flag)
        }
        written.generate(since: former)
        guard let (parts, _) = written.parts(replacing: nil) else { return nil }
        return try CompiledDefinitions(parts, similarTo: nil)
    }

    /// Returns the definitions with a flag for each experiment that must be served as a flag and is not. Datafiles of
    /// earlier releases and of other products may lack such flags.
    ///
    /// - Returns: `nil` if no flag is missing.
    package func servingAll() throws(CoreError) -> CompiledDefinitions? {
        let unserved = datafile.unservedExperiments
        guard !unserved.isEmpty else { return nil }
        var served = definitions
        var former = definitions
        // `generate` writes what `former` lacks.
        let keys = Set(unserved.map(\.key))
        former.experiments.remove(keys)
        former.flags.remove(keys)
        served.serveExperiments()
        served.generate(since: former)
        return CompiledDefinitions(served, try Datafile.usable(served.datafile, similarTo: datafile))
    }
}

extension Datafile {
    /// The experiments that need a flag with the same key, but have none or a wrong one. Concluded experiments are left
    /// out, because their flags deliver the winner and no longer have the experiment.
    fileprivate var unservedExperiments: [Experiment] {
        let unserved = experiments.filter { experiment in
            guard !experiment.isConcluded, mustBeServed(experiment) else { return false }
            guard let flag = flag(key: experiment.key) else { return true }
            return flag.annotations.servesExperiment && !flag.serves(experiment)
        }
        guard !unserved.isEmpty else { return [] }
        let otherFlags = flags.lazy.filter { !$0.annotations.servesExperiment }
        let experimentsOfOtherFlags = Set(otherFlags.flatMap(\.experiments).map(\.id))
        return unserved.filter { !experimentsOfOtherFlags.contains($0.id) }
    }

    /// Whether an experiment needs a flag with the same key. Its definition says so, or else an earlier release of this
    /// server created the experiment over the API. Such an experiment has three traits: it names no flag, its campaign
    /// has the id of the experiment, and the account has the id of the project. ``ProjectDefinitions/isServed(_:)`` has
    /// the same rule.
    private func mustBeServed(_ experiment: Experiment) -> Bool {
        if let isServed = experiment.annotations.isServed { return isServed }
        return accountID == projectID && experiment.annotations.flagKey == nil && experiment.layerID == experiment.id
    }
}

extension Flag {
    /// Whether the flag returns the keys of an experiment's variations.
    fileprivate func serves(_ experiment: Experiment) -> Bool {
        guard let variable = variables.first, variables.count == 1, experiments.map(\.id) == [experiment.id] else {
            return false
        }
        return experiment.variations.allSatisfy {
            $0.isFeatureEnabled && $0.variableValues[variable.id] == $0.key.string
        }
    }
}
