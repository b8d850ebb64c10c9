public import Bucketing
public import Definitions
public import Storage

/// The projects as one event loop sees them. It keeps a snapshot of the catalog, and takes the catalog's lock only
/// after a change, because requests are frequent and changes are rare.
public final class ProjectView {
    let catalog: ProjectCatalog
    /// The ``ProjectCatalog/currentGeneration`` of the snapshot.
    private var generation: UInt64 = 0
    private var snapshot = ProjectCatalog.Snapshot()
    private var projects: [String: Project] { snapshot.projects }

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Returns the current project of an SDK key; `nil` if there is none.
    public func project(_ sdkKey: String) -> Project? {
        refresh()
        return projects[sdkKey]
    }

    /// Reads the changes that any process has stored. Concurrent callers share reads: only one is in progress at a
    /// time.
    public func update() async throws(StorageError) {
        try await catalog.refresh()
    }

    /// The current attributes and segments.
    public var schema: AttributeSchema {
        refresh()
        return snapshot.schema
    }

    /// Returns the projects that a caller may use, in the order of their SDK keys.
    public func records(for access: ProjectAccess) -> [ProjectRecord] {
        refresh()
        return snapshot.records.filter { access.allows($0.sdkKey) }
    }

    /// Returns the record of a project.
    public func record(of project: Project) -> ProjectRecord? {
        refresh()
        return snapshot.records.first { $0.sdkKey == project.sdkKey }
    }

    /// Returns the project of an SDK key. Without an SDK key, returns the only project that the caller may use, or else
    /// the default.
    ///
    /// - Throws: 403 if the caller may not use the project, 404 when there is no such project.
    public func project(named sdkKey: String?, for access: ProjectAccess) throws(CoreError) -> Project {
        refresh()
        if let sdkKey = sdkKey ?? access.onlyProject {
            try access.check(sdkKey)
            guard let project = projects[sdkKey] else { throw .undefined("no project has the SDK key '\(sdkKey)'") }
            return project
        }
        guard let project = snapshot.defaultProject else {
            throw .undefined(
                projects.isEmpty
                    ? "the server has no datafile and no experiment yet"
                    : "the default project must have a datafile that this server can use; name another project")
        }
        try access.check(project.sdkKey)
        return project
    }

    /// Returns the projects that a client's events may belong to, in the order of their SDK keys.
    ///
    /// With an SDK key, this is the project with that key. Otherwise these are the projects with the project id. If no
    /// project has the id, or if no id is given, these are all projects that the caller may use.
    ///
    /// - Throws: 403 if the caller may not use the project, 404 when no project has the SDK key.
    public func projects(
        sdkKey: String?, projectID: String?, for access: ProjectAccess
    ) throws(CoreError) -> [Project] {
        if let sdkKey { return [try project(named: sdkKey, for: access)] }
        refresh()
        let all = projects.values.filter { access.allows($0.sdkKey) }.sorted { $0.sdkKey < $1.sdkKey }
        let ofID = all.filter { $0.datafile.projectID == projectID }
        return ofID.isEmpty ? all : ofID
    }

    /// See ``ProjectCatalog/Snapshot/sdkKeyToChange(_:for:)``.
    public func sdkKeyToChange(_ sdkKey: String?, for access: ProjectAccess) throws(CoreError) -> String {
        refresh()
        return try snapshot.sdkKeyToChange(sdkKey, for: access)
    }

    /// Whether a variation belongs to an experiment in another project than the one with an SDK key. Then the projects
    /// share the experiment.
    func hasVariation(_ variationID: Identifier, ofExperiment experimentID: Identifier, besides sdkKey: String) -> Bool
    {
        refresh()
        return projects.values.contains { project in
            project.sdkKey != sdkKey
                && project.datafile.experiment(id: experimentID)?.variation(id: variationID) != nil
        }
    }

    /// Returns the experiments with a key in the projects that a caller may use.
    ///
    /// - Throws: 403 if only other projects have such an experiment.
    public func experiments(key: Identifier, for access: ProjectAccess) throws(CoreError) -> [Experiment] {
        try experiments(for: access) { $0.experiment(key: key) }
    }

    /// Returns the experiments with an id in the projects that a caller may use.
    ///
    /// - Throws: 403 if only other projects have such an experiment.
    public func experiments(id: Identifier, for access: ProjectAccess) throws(CoreError) -> [Experiment] {
        try experiments(for: access) { $0.experiment(id: id) }
    }

    private func experiments(
        for access: ProjectAccess, _ find: (Datafile) -> Experiment?
    ) throws(CoreError) -> [Experiment] {
        refresh()
        let all = projects.values.filter { find($0.datafile) != nil }
        let allowed = all.filter { access.allows($0.sdkKey) }
        if allowed.isEmpty, let other = all.map(\.sdkKey).min() { try access.check(other) }
        return allowed.compactMap { find($0.datafile) }
    }

    /// Takes the catalog's snapshot if it has changed.
    private func refresh() {
        let current = catalog.currentGeneration
        guard current != generation else { return }
        generation = current
        snapshot = catalog.snapshot()
    }
}

@available(*, unavailable) extension ProjectView: Sendable {}
