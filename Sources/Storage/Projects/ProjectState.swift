public import Bucketing

/// Everything that decisions depend on except users, from one snapshot. Servers keep it in memory.
public struct ProjectState: Sendable {
    /// A counter that each change of this state increments, in any process.
    public var changes: Int64
    /// All projects, in the order of their SDK keys.
    public var projects: [ProjectRecord]
    /// The version of the newest datafile of all projects, including deleted ones; 0 if there was none.
    public var newestDatafile: Int64
    /// The active datafiles that are newer than the caller knows, in the order of their versions.
    public var datafiles: [StoredDatafile]
    /// The forced variations of all users.
    public var forcedVariations: [ForcedVariation]
    public var schema: AttributeSchema
    /// The generation of the store.
    public var generation = StoreGeneration(storeID: 0, epoch: 0)
    /// The ``FeedCursor/epoch`` of former generations of the store, and epochs that clients have presented although
    /// they never belonged to it.
    public var formerEpochs: Set<Int64> = []

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

/// A variation that is forced on a user for a test. It is not part of the profile.
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
