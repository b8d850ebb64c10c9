public import Bucketing
public import Chronology

/// A datafile that is or was active.
public struct StoredDatafile: Sendable {
    /// Increases with each datafile of any project.
    public var version: Int64
    public var sdkKey: String
    /// The member `revision` of the datafile.
    public var revision: String
    public var body: Body
    public var storedAt: Instant
    /// The name of the ``Author`` who activated the datafile.
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

    /// The content of a datafile. A datafile that was uploaded is stored whole; a datafile that an edit has generated
    /// is stored in parts.
    public enum Body: Sendable {
        /// The uploaded JSON.
        case whole([UInt8])
        /// The generated parts.
        case parts(DatafileParts)
        /// The difference between the generated parts and the parts of an earlier version.
        case change(DatafileParts.Change)

        /// Returns the datafile in parts; `nil` if it is stored whole.
        ///
        /// - Parameter former: the parts of the earlier version, for ``change(_:)``; `nil` if it was stored whole or is
        ///   unknown.
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

    /// The datafile as JSON. A datafile in parts is joined at each access. For ``Body/change(_:)`` the elements are
    /// missing.
    public var content: [UInt8] { body.content }
}

/// A datafile to store.
public enum DatafileWrite: Sendable {
    /// An uploaded datafile as JSON.
    case whole([UInt8])
    /// A datafile that an edit has generated, and its difference to the active datafile. If the active datafile is
    /// stored whole, the difference has all elements.
    case edit(DatafileParts, DatafileParts.Change)

    /// The whole datafile or all its parts.
    public var body: StoredDatafile.Body {
        switch self {
        case .whole(let content): .whole(content)
        case .edit(let parts, _): .parts(parts)
        }
    }

    /// The form to write: the difference if it has fewer elements than the datafile.
    var written: StoredDatafile.Body {
        guard case .edit(let parts, let change) = self, change.put.count < parts.count else { return body }
        return .change(change)
    }

    /// The estimated memory of the waiting datafile in bytes; see ``WaitingBytes``.
    var bytes: Int {
        switch self {
        case .whole(let content): content.count
        case .edit(_, let change): change.put.reduce(change.base.count) { $0 + $1.body.count }
        }
    }
}
