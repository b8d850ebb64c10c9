import Bucketing
import JSON

/// A project: a datafile of its own under an SDK key.
public struct ProjectRecord: Sendable, Equatable {
    public var sdkKey: String
    /// What people call it; empty if they gave it no name.
    public var name: String
    public var createdAt: Timestamp
    /// Whether it is meant by requests that name no project. Of the projects of a store exactly one is.
    public var isDefault: Bool

    public init(sdkKey: String, name: String = "", createdAt: Timestamp, isDefault: Bool) {
        self.sdkKey = sdkKey
        self.name = name
        self.createdAt = createdAt
        self.isDefault = isDefault
    }
}

/// What an admin says of a project.
public struct ProjectSettings: Sendable, Equatable {
    public var sdkKey: String
    /// `nil` keeps the name.
    public var name: String?
    /// Whether it becomes the default.
    public var becomesDefault: Bool

    public init(sdkKey: String, name: String? = nil, becomesDefault: Bool = false) {
        self.sdkKey = sdkKey
        self.name = name
        self.becomesDefault = becomesDefault
    }
}

public enum ProjectSettingsResult: Sendable, Equatable {
    case created(ProjectRecord)
    case changed(ProjectRecord)
    case unchanged(ProjectRecord)

    public var record: ProjectRecord {
        switch self {
        case .created(let record), .changed(let record), .unchanged(let record): record
        }
    }
}

public enum ProjectRemovalResult: Sendable, Equatable {
    case removed
    /// There is no such project.
    case absent
    /// It is the default, and there are others.
    case isDefault
    /// Another version of its datafile is active than the one that was found empty.
    case changed
}

/// Which projects there are. Each is made explicitly, except the first: otherwise a mistyped SDK key would make one.
public enum ProjectRules {
    public enum Activation: Sendable, Equatable {
        case known
        /// The datafile makes this project.
        case new(ProjectRecord)
        /// There is no such project.
        case refused
    }

    /// Decides whether a project gets a datafile.
    ///
    /// - Parameter makesProject: whether the datafile may make a further project.
    public static func activate(
        _ sdkKey: String, makesProject: Bool, among projects: [ProjectRecord], at now: Timestamp
    ) -> Activation {
        if projects.contains(where: { $0.sdkKey == sdkKey }) { return .known }
        guard makesProject || projects.isEmpty else { return .refused }
        return .new(ProjectRecord(sdkKey: sdkKey, createdAt: now, isDefault: projects.isEmpty))
    }

    /// Creates or changes a project. The first one becomes the default.
    public static func apply(
        _ change: ProjectSettings, among projects: [ProjectRecord], at now: Timestamp
    ) -> ProjectSettingsResult {
        let former = projects.first { $0.sdkKey == change.sdkKey }
        var record =
            former ?? ProjectRecord(sdkKey: change.sdkKey, createdAt: now, isDefault: projects.isEmpty)
        record.name = change.name ?? record.name
        record.isDefault = record.isDefault || change.becomesDefault
        guard let former else { return .created(record) }
        return record == former ? .unchanged(record) : .changed(record)
    }

    /// Decides whether a project can be removed.
    ///
    /// - Parameters:
    ///   - expected: the version of the datafile that was found empty.
    ///   - active: the version of the active datafile; 0 if there is none.
    public static func remove(
        _ sdkKey: String, expecting expected: Int64, active: Int64, among projects: [ProjectRecord]
    ) -> ProjectRemovalResult {
        guard let record = projects.first(where: { $0.sdkKey == sdkKey }) else { return .absent }
        if record.isDefault, projects.count > 1 { return .isDefault }
        return expected == active ? .removed : .changed
    }
}

extension AuditNote {
    /// Describes what an admin said of a project; `nil` if it changed nothing.
    public init?(_ result: ProjectSettingsResult, replacing former: ProjectRecord?) {
        if case .unchanged = result { return nil }
        self.init(
            .projectPut, of: result.record.sdkKey, before: former.map(Self.describe) ?? .null,
            after: Self.describe(result.record))
    }

    /// Describes the removal of a project.
    public init(removing former: ProjectRecord) {
        self.init(.projectDelete, of: former.sdkKey, before: Self.describe(former))
    }

    private static func describe(_ record: ProjectRecord) -> JSONValue {
        ["name": .string(record.name), "default": .bool(record.isDefault)]
    }
}
