import Bucketing
public import Chronology
import JSON

/// A project, which has an SDK key and a datafile of its own.
public struct ProjectRecord: Sendable, Equatable {
    public var sdkKey: String
    /// The display name; empty if there is none.
    public var name: String
    public var createdAt: Instant
    /// Whether requests that name no project use this one. Exactly one project of a store is the default.
    public var isDefault: Bool

    public init(sdkKey: String, name: String = "", createdAt: Instant, isDefault: Bool) {
        self.sdkKey = sdkKey
        self.name = name
        self.createdAt = createdAt
        self.isDefault = isDefault
    }
}

/// A change of a project's settings by an admin.
public struct ProjectSettings: Sendable, Equatable {
    public var sdkKey: String
    /// The new name; `nil` to keep the name.
    public var name: String?
    /// Whether the project becomes the default.
    public var becomesDefault: Bool

    public init(sdkKey: String, name: String? = nil, becomesDefault: Bool = false) {
        self.sdkKey = sdkKey
        self.name = name
        self.becomesDefault = becomesDefault
    }
}

/// The result of applying ``ProjectSettings``, with the project afterwards.
public enum ProjectSettingsResult: Sendable, Equatable {
    case created(ProjectRecord)
    case changed(ProjectRecord)
    case unchanged(ProjectRecord)

    /// The project afterwards.
    public var record: ProjectRecord {
        switch self {
        case .created(let record), .changed(let record), .unchanged(let record): record
        }
    }
}

/// The result of removing a project.
public enum ProjectRemovalResult: Sendable, Equatable {
    case removed
    /// The project does not exist.
    case absent
    /// Refused: the project is the default, and other projects exist.
    case isDefault
    /// Refused: the active datafile is no longer the version that was found empty.
    case changed
}

/// The rules of creating and removing projects. Projects are created explicitly, because otherwise a mistyped SDK key
/// would create a project. The only exception is the first project, which its datafile creates.
public enum ProjectRules {
    /// Whether a datafile may be activated.
    public enum Activation: Sendable, Equatable {
        /// The project exists.
        case known
        /// The datafile creates this project.
        case new(ProjectRecord)
        /// The project does not exist, and the datafile must not create it.
        case refused
    }

    /// Decides whether a datafile of a project may be activated.
    ///
    /// - Parameter makesProject: whether the datafile may create a project even if others exist.
    public static func activate(
        _ sdkKey: String, makesProject: Bool, among projects: [ProjectRecord], at now: Instant
    ) -> Activation {
        if projects.contains(where: { $0.sdkKey == sdkKey }) { return .known }
        guard makesProject || projects.isEmpty else { return .refused }
        return .new(ProjectRecord(sdkKey: sdkKey, createdAt: now, isDefault: projects.isEmpty))
    }

    /// Creates or changes a project. The first project of a store becomes the default.
    public static func apply(
        _ change: ProjectSettings, among projects: [ProjectRecord], at now: Instant
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
    /// Describes the change of a project's settings.
    ///
    /// - Parameter former: the project before the change; `nil` if it was created.
    /// - Returns: `nil` if nothing has changed.
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
