public import Bucketing

/// A datafile that is or was active.
public struct StoredDatafile: Sendable {
    /// Ascending across the datafiles of all projects.
    public var version: Int64
    public var sdkKey: String
    /// The datafile's own revision.
    public var revision: String
    /// JSON.
    public var content: [UInt8]
    public var storedAt: Timestamp
    /// The name of its ``Author``.
    public var author: String

    public init(
        version: Int64, sdkKey: String, revision: String, content: [UInt8], storedAt: Timestamp, author: String
    ) {
        self.version = version
        self.sdkKey = sdkKey
        self.revision = revision
        self.content = content
        self.storedAt = storedAt
        self.author = author
    }
}

/// A variation that is forced on a user for a test; it is not part of the profile.
public struct ForcedVariation: Sendable, Hashable {
    public var sdkKey: String
    public var userID: Identifier
    public var experimentKey: Identifier
    public var variationKey: Identifier

    public init(sdkKey: String, userID: Identifier, experimentKey: Identifier, variationKey: Identifier) {
        self.sdkKey = sdkKey
        self.userID = userID
        self.experimentKey = experimentKey
        self.variationKey = variationKey
    }
}

/// Everything that decisions depend on except users, from one snapshot.
public struct ProjectState: Sendable {
    /// A counter that every change raises, in any process.
    public var changes: Int64
    /// All projects, in the order of their SDK keys.
    public var projects: [ProjectRecord]
    /// The version of the newest datafile of all projects, including deleted ones; 0 if there was none.
    public var newestDatafile: Int64
    /// The active datafiles that were asked for, in the order of their versions.
    public var datafiles: [StoredDatafile]
    public var forcedVariations: [ForcedVariation]
    public var schema: AttributeSchema

    public init(
        changes: Int64, projects: [ProjectRecord], newestDatafile: Int64, datafiles: [StoredDatafile],
        forcedVariations: [ForcedVariation], schema: AttributeSchema
    ) {
        self.changes = changes
        self.projects = projects
        self.newestDatafile = newestDatafile
        self.datafiles = datafiles
        self.forcedVariations = forcedVariations
        self.schema = schema
    }
}

/// A user of whom nothing was left at a time: erased, or merged into another user.
public struct UserRemoval: Sendable, Hashable {
    /// The ``ErasureRules/hash(_:)`` or the ``ErasureRules/mergeHash(_:)`` of the user.
    public var mark: Int64
    /// In a unit of the store, by its own clock.
    public var time: Int64

    public init(mark: Int64, time: Int64) {
        self.mark = mark
        self.time = time
    }

    /// The ``ErasureRules/hash(_:)`` that the user may have: one of the two is the user's.
    public var userHashes: [Int64] { [mark, ~mark] }
}

/// Stores datafiles and forced variations, for all processes that share the store.
public protocol ProjectStore: AnyObject {
    /// Reads the state of all projects if it has changed. It is small and rarely changes, so that its users keep it in
    /// memory.
    ///
    /// - Parameters:
    ///   - changes: the ``ProjectState/changes`` of the known state; -1 if there is none.
    ///   - version: the greatest known version; only newer datafiles are read.
    ///   - completion: called with `nil` if nothing has changed.
    func projects(
        ifChangedSince changes: Int64, datafilesAfter version: Int64, _ completion: @escaping Completion<ProjectState?>)

    /// Reads the users who were erased or merged lately, by any process; some of them more than once.
    ///
    /// - Parameter time: the greatest known ``UserRemoval/time``; only later ones need to be read.
    func removals(after time: Int64, _ completion: @escaping Completion<[UserRemoval]>)

    /// Reads the last datafiles of a project, newest first, without their content.
    func datafileHistory(sdkKey: String, limit: Int, _ completion: @escaping Completion<[StoredDatafile]>)

    /// Reads the datafile of a project that was active at a time; `nil` if there was none, or if it is no longer kept.
    func datafile(sdkKey: String, activeAt time: Timestamp, _ completion: @escaping Completion<StoredDatafile?>)

    /// Reads a datafile of a project by its version; `nil` if there was none, or if it is no longer kept.
    func datafile(sdkKey: String, version: Int64, _ completion: @escaping Completion<StoredDatafile?>)

    /// Reads the last datafile of a project that an author activated, if any.
    func lastDatafile(sdkKey: String, by author: Author, _ completion: @escaping Completion<StoredDatafile?>)

    /// Activates a datafile and records that in the audit log.
    ///
    /// - Parameters:
    ///   - allocations: those of the datafile's experiments, see ``AllocationRules/allocations(in:)``.
    ///   - note: the store adds the versions and revisions before and after.
    ///   - replacing: the version that must be active, 0 for none, so that no concurrent edit is lost; `nil` accepts
    ///     any.
    ///   - makesProject: whether the datafile may make a project besides others. The first is always made.
    ///   - completion: called with the stored datafile, or `nil` if another version was active or the project is
    ///     missing.
    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, allocations: [Identifier: TrafficAllocation],
        replacing: Int64?, makesProject: Bool, note: AuditNote, by author: Author,
        _ completion: @escaping Completion<StoredDatafile?>
    )

    /// Creates or changes a project by ``ProjectRules`` and records that in the audit log.
    ///
    /// - Parameter datafile: the content, of the revision `0`, of a project that is new.
    func putProject(
        _ change: ProjectDefinition, datafile: [UInt8], by author: Author,
        _ completion: @escaping Completion<ProjectDefinitionResult>)

    /// Deletes a project with all its datafiles and forced variations, and records that in the audit log.
    ///
    /// - Parameter version: the version of its datafile, which has nothing that would be lost.
    func removeProject(
        sdkKey: String, expecting version: Int64, by author: Author,
        _ completion: @escaping Completion<ProjectRemovalResult>)

    /// Forces a variation on a user, or with `nil` removes the forced one, and records that in the audit log.
    ///
    /// - Parameter completion: called with the variation forced before, if any.
    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        _ completion: @escaping Completion<Identifier?>
    )
}
