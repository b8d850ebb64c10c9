public import Bucketing

/// A datafile as it is or was in force.
public struct StoredDatafile: Sendable {
    /// Counts the datafiles of all projects; greater is later.
    public var version: Int64
    public var sdkKey: String
    /// The datafile's own revision.
    public var revision: String
    /// JSON.
    public var content: [UInt8]
    public var storedAt: Timestamp
    /// The name of the token that brought it, or where else it came from.
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

/// A variation that is forced on one user for a test, without being stored in the profile.
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

/// Where datafiles and forced variations are kept, for all processes that share the store. The promises of
/// ``ProfileStore`` hold here too.
///
/// What reads here blocks, and is not for an event loop: these are small and rarely change, and are kept in memory by
/// those who need them.
public protocol ProjectStore: Sendable {
    /// A number that rises with every change, in whatever process.
    func projectChanges() throws(StorageError) -> Int64

    /// The datafiles in force whose version is greater than `version`.
    func datafiles(after version: Int64) throws(StorageError) -> [StoredDatafile]

    /// The last datafiles of one project, the newest first, with empty content.
    func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile]

    /// The last datafile of one project that an author put in force, if any.
    func lastDatafile(sdkKey: String, by author: Author) throws(StorageError) -> StoredDatafile?

    /// All forced variations.
    func forcedVariations() throws(StorageError) -> [ForcedVariation]

    /// Puts a datafile in force, and records that in the audit log.
    ///
    /// - Parameters:
    ///   - note: the store adds the version and the revision before and after.
    ///   - replacing: the version that must be in force, 0 for none; `nil`: whichever is. So nobody's edit is lost.
    ///   - completion: called with the datafile as stored, or `nil` when another version was in force.
    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, replacing: Int64?, note: AuditNote, by author: Author,
        completion: @escaping @Sendable (Result<StoredDatafile?, StorageError>) -> Void
    )

    /// Forces a variation on a user, or with `nil` no longer does, and records it in the audit log.
    ///
    /// - Parameter completion: called with the variation that was forced before, if any.
    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    )
}
