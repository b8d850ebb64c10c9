public import Bucketing
public import Definitions
public import Storage

extension ProjectCatalog.Snapshot {
    /// The SDK key of the first project if the change that creates it does not name one.
    private static let firstKey = "default"

    /// Returns the SDK key of the project to change. Without a given SDK key, this is the only project that the caller
    /// may use. If the caller may use several projects, it is the default project.
    ///
    /// While the server has no projects, the project need not exist, because the first change creates it.
    ///
    /// - Parameter sdkKey: the SDK key in the request; `nil` if it has none.
    /// - Throws: 403 if the caller may not use the project; 404 if there are projects, but none with this SDK key.
    public func sdkKeyToChange(_ sdkKey: String?, for access: ProjectAccess) throws(CoreError) -> String {
        let sdkKey = sdkKey ?? access.onlyProject ?? (records.isEmpty ? Self.firstKey : nil)
        if let sdkKey {
            try access.check(sdkKey)
            return try records.isEmpty ? SDKKey.check(sdkKey) : record(sdkKey).sdkKey
        }
        guard let project = records.first(where: \.isDefault) else {
            throw CoreError(.conflict, "one project must be the default; none is: name one by its SDK key")
        }
        try access.check(project.sdkKey)
        return project.sdkKey
    }

    /// Returns the record of the project with an SDK key.
    ///
    /// - Throws: 404 if there is no such project; the error names the SDK key that was probably meant.
    public func record(_ sdkKey: String) throws(CoreError) -> ProjectRecord {
        if let record = records.first(where: { $0.sdkKey == sdkKey }) { return record }
        let key = try SDKKey.check(sdkKey)
        let near = Spelling.nearest(to: key, among: records.map(\.sdkKey))
        let question = near.map { "; did you mean '\($0)'?" } ?? ";"
        throw .undefined("no project has the SDK key '\(key)'\(question) PUT /v1/projects/\(key) makes it")
    }
}

extension Datafile {
    /// The numbers of the elements that would be lost if the project were deleted, by kind, without kinds that have
    /// none. Empty for the datafile of a new project, ``Bucketing/Datafile/empty(projectID:sdkKey:)``.
    public var contents: [(name: String, count: Int)] {
        [
            ("experiments", experimentsBesideRules.count), ("flags", flags.count), ("rollouts", rollouts.count),
            ("groups", groups.count), ("holdouts", holdouts.count), ("audiences", audiences.count),
            ("events", events.count), ("attributes", attributes.count),
        ].filter { $0.1 > 0 }
    }
}
