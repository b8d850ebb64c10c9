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
    /// - Parameter former: definitions that are probably similar, and their datafile. Parts that both have are not read again.
    /// - Throws: as for one that is stored whole.
    package init(
        _ parts: DatafileParts, similarTo former: (compiled: CompiledDefinitions, parts: DatafileParts)?
    ) throws(CoreError) {
        let known = former.map { (root: $0.compiled.definitions.root, parts: $0.parts) }
        let value = try Datafile.document(parts, similarTo: known)
        try self.init(value, similarTo: former?.compiled)
    }

    private init(_ value: JSONValue, similarTo former: CompiledDefinitions?) throws(CoreError) {
        let edit = former.flatMap { DatafileEdit(from: $0.definitions.root, to: value.object ?? JSONObject()) }
        let datafile = try Datafile.usable(value, similarTo: former?.datafile, edit)
        let definitions = edit.flatMap { former?.definitions.reading(value, $0) }
        self.init(definitions ?? ProjectDefinitions(value), datafile)
    }

    /// Adds the lifetime of assignments that the project had, because uploads from other products do not have it.
    ///
    /// - Returns: `nil` if the definitions have a lifetime, or if the project had none.
    public func completed(with lifetime: AssignmentLifetime?) throws(CoreError) -> CompiledDefinitions? {
        guard let lifetime, datafile.assignmentLifetime == nil else { return nil }
        let completed = definitions.lasting(lifetime)
        return CompiledDefinitions(completed, try Datafile.usable(completed.datafile, similarTo: datafile))
    }

    /// Changes definitions, and compiles the datafile that is generated from them.
    ///
    /// - Parameter former: the definitions before the change; `nil` for those of a new project.
    /// - Returns: the former definitions if the change makes no difference; otherwise also what differs between the
    ///   datafiles, if that is known.
    /// - Throws: what the change throws; 400 if the datafile would not be usable.
    package static func edited<Outcome>(
        _ former: CompiledDefinitions?, sdkKey: String,
        _ change: (inout ProjectDefinitions) throws(CoreError) -> Outcome
    ) throws(CoreError) -> (compiled: CompiledDefinitions, outcome: Outcome, hasChanged: Bool, edit: DatafileEdit?) {
        var known = former?.definitions
        known?.sdkKey = sdkKey
        var edited = known ?? ProjectDefinitions(projectID: sdkKey, sdkKey: sdkKey)
        let outcome = try change(&edited)
        edited.serveExperiments()
        if let former, let known, !edited.hasChanges(since: known) { return (former, outcome, false, nil) }
        edited.incrementRevision()
        let edit = edited.generate(since: known)
        let datafile = try Datafile.usable(edited.datafile, similarTo: former?.datafile, edit)
        return (CompiledDefinitions(edited, datafile), outcome, true, edit)
    }

    /// Returns the definitions as another server reads them from rows, after each element has been written anew.
    ///
    /// - Returns: `nil` if the datafile stays whole, see ``Bucketing/DatafileParts/edited(to:since:)``.
    /// - Throws: 400 if the datafile would not be usable.
    package func adopted() throws(CoreError) -> CompiledDefinitions? {
        var written = try servingAll()?.definitions ?? definitions
        written.generate(since: nil)
        guard let (parts, _) = written.parts(replacing: nil) else { return nil }
        return try CompiledDefinitions(parts, similarTo: nil)
    }

    /// Adds the flags that serve experiments of an earlier release or of another product.
    ///
    /// - Returns: `nil` if no flag is missing.
    package func servingAll() throws(CoreError) -> CompiledDefinitions? {
        let unserved = datafile.unservedExperiments
        guard !unserved.isEmpty else { return nil }
        var served = definitions
        var former = definitions
        let keys = Set(unserved.map(\.key))
        former.experiments.remove(keys)
        former.flags.remove(keys)
        served.serveExperiments()
        served.generate(since: former)
        return CompiledDefinitions(served, try Datafile.usable(served.datafile, similarTo: datafile))
    }
}

extension Datafile {
    /// The experiments that ``ProjectDefinitions/isServed(_:)`` and that no flag serves correctly.
    fileprivate var unservedExperiments: [Experiment] {
        let isOwnProject = accountID == projectID
        let unserved = experiments.filter { experiment in
            let (annotations, flag) = (experiment.annotations, flag(key: experiment.key))
            let isKnown = isOwnProject && annotations.flagKey == nil && experiment.layerID == experiment.id
            return experiment.status != ExperimentStatus.concluded.rawValue && annotations.isServed ?? isKnown
                && flag.map { $0.annotations.servesExperiment && !$0.serves(experiment) } ?? true
        }
        guard !unserved.isEmpty else { return [] }
        let used = Set(flags.lazy.filter { !$0.annotations.servesExperiment }.flatMap(\.experiments).map(\.id))
        return unserved.filter { !used.contains($0.id) }
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
