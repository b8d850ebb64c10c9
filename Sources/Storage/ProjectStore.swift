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

/// Stores datafiles and forced variations for all processes that share the store, with the guarantees of
/// ``ProfileStore``.
///
/// Reads block; do not call them on an event loop. The data is small and rarely changes, so that its users keep it in
/// memory.
public protocol ProjectStore: Sendable {
    /// Returns a counter that every change raises, in any process.
    func projectChanges() throws(StorageError) -> Int64

    /// Returns the active datafiles whose version is greater than `version`.
    func datafiles(after version: Int64) throws(StorageError) -> [StoredDatafile]

    /// Returns the last datafiles of a project, newest first, without their content.
    func datafileHistory(sdkKey: String, limit: Int) throws(StorageError) -> [StoredDatafile]

    /// Returns the last datafile of a project that an author activated, if any.
    func lastDatafile(sdkKey: String, by author: Author) throws(StorageError) -> StoredDatafile?

    /// Returns all forced variations.
    func forcedVariations() throws(StorageError) -> [ForcedVariation]

    /// Activates a datafile and records that in the audit log.
    ///
    /// - Parameters:
    ///   - note: the store adds the versions and revisions before and after.
    ///   - replacing: the version that must be active, 0 for none, so that no concurrent edit is lost; `nil` accepts any.
    ///   - completion: called with the stored datafile, or `nil` if another version was active.
    func putDatafile(
        _ content: [UInt8], sdkKey: String, revision: String, replacing: Int64?, note: AuditNote, by author: Author,
        completion: @escaping @Sendable (Result<StoredDatafile?, StorageError>) -> Void
    )

    /// Forces a variation on a user, or with `nil` removes the forced one, and records that in the audit log.
    ///
    /// - Parameter completion: called with the variation forced before, if any.
    func setForcedVariation(
        _ variationKey: Identifier?, experimentKey: Identifier, userID: Identifier, sdkKey: String, by author: Author,
        completion: @escaping @Sendable (Result<Identifier?, StorageError>) -> Void
    )
}
