public import Bucketing
public import Chronology

/// A datafile that is or was active.
public struct StoredDatafile: Sendable {
    /// Increases with each datafile of any project.
    public var version: Int64
    public var sdkKey: String
    /// The datafile's own revision.
    public var revision: String
    public var body: Body
    public var storedAt: Instant
    /// The name of its ``Author``.
    public var author: String

    public init(
        version: Int64, sdkKey: String, revision: String, body: Body, storedAt: Instant, author: String
    ) {
        self.version = version
        self.sdkKey = sdkKey
        self.revision = revision
        self.body = body
        self.storedAt = storedAt
        self.author = author
    }

    public enum Body: Sendable {
        /// As it was uploaded. JSON.
        case whole([UInt8])
        /// As an edit has generated it.
        case parts(DatafileParts)
        /// What has changed since the version that the reader knows.
        case change(DatafileParts.Change)

        /// Returns the datafile in parts; `nil` if it is stored whole.
        ///
        /// - Parameter former: the datafile that the reader knows, if that is in parts.
        public func parts(after former: DatafileParts?) -> DatafileParts? {
            switch self {
            case .whole: nil
            case .parts(let parts): parts
            case .change(let change):
                (former ?? DatafileParts(base: change.base, elements: [])).applying(change)
            }
        }

        /// See ``StoredDatafile/content``.
        public var content: [UInt8] {
            switch self {
            case .whole(let content): content
            case .parts(let parts): parts.joined
            case .change(let change): change.base
            }
        }
    }

    /// The datafile; without elements if only what has changed was read. One in parts is joined at each access.
    public var content: [UInt8] { body.content }
}

/// A datafile to store.
public enum DatafileWrite: Sendable {
    /// JSON.
    case whole([UInt8])
    /// Made by an edit. If it replaces a datafile that was stored whole, all its elements are in the change.
    case edit(DatafileParts, DatafileParts.Change)

    public var body: StoredDatafile.Body {
        switch self {
        case .whole(let content): .whole(content)
        case .edit(let parts, _): .parts(parts)
        }
    }

    /// What is written in place of the former datafile.
    var written: StoredDatafile.Body {
        guard case .edit(let parts, let change) = self, change.put.count < parts.count else { return body }
        return .change(change)
    }

    /// The memory that it takes while it waits.
    var bytes: Int {
        switch self {
        case .whole(let content): content.count
        case .edit(_, let change): change.put.reduce(change.base.count) { $0 + $1.body.count }
        }
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
    /// A counter that each change in any process increments.
    public var changes: Int64
    /// All projects, in the order of their SDK keys.
    public var projects: [ProjectRecord]
    /// The version of the newest datafile of all projects, including deleted ones; 0 if there was none.
    public var newestDatafile: Int64
    /// The active datafiles that were requested, in the order of their versions.
    public var datafiles: [StoredDatafile]
    public var forcedVariations: [ForcedVariation]
    public var schema: AttributeSchema
    /// The generation of the store.
    public var generation = StoreGeneration(storeID: 0, epoch: 0)
    /// The earlier epochs of the store, and others that are known not to belong to it.
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

/// A user who was erased, or merged into another user, at a time.
public struct UserRemoval: Sendable, Hashable {
    /// The ``ErasureRules/hash(_:)`` or the ``ErasureRules/mergeHash(_:)`` of the user.
    public var mark: Int64
    /// The time by the store's clock. The unit depends on the store.
    public var time: Int64

    public init(mark: Int64, time: Int64) {
        self.mark = mark
        self.time = time
    }

    /// The hashes that the user may have. One of the two is the user's ``ErasureRules/hash(_:)``, because ``mark`` may
    /// be that of a merge.
    public var userHashes: [Int64] { [mark, ~mark] }
}
