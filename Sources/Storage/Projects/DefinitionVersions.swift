public import Bucketing
import JSON

/// The history of some elements of a project, from all datafiles that are kept.
public struct DefinitionVersions: Sendable {
    /// A version of an element, and the datafiles that have it.
    public struct Row: Sendable {
        public var element: DatafileParts.Element
        /// The version of the first datafile that has this version of the element.
        public var version: Int64
        /// The version of the datafile that replaced or removed the element; `nil` if the newest datafile has it.
        public var until: Int64?

        public init(_ element: DatafileParts.Element, version: Int64, until: Int64?) {
            self.element = element
            self.version = version
            self.until = until
        }
    }

    /// The datafiles that are kept, newest first. Datafiles in parts lack their elements, and uploaded datafiles lack
    /// their content.
    public var datafiles: [StoredDatafile]
    /// The requested elements of the datafiles in parts, in any order.
    public var rows: [Row]

    public init(datafiles: [StoredDatafile], rows: [Row]) {
        self.datafiles = datafiles
        self.rows = rows
    }

    /// Returns the requested elements of a datafile in parts.
    public func elements(in version: Int64) -> [DatafileParts.Element] {
        rows.lazy.filter { $0.version <= version && ($0.until ?? .max) > version }.map(\.element)
    }
}

extension StoreQuery<DefinitionVersions> {
    /// Reads all datafiles of a project that are kept, and the elements with some keys. An element may be in any list
    /// of the datafile.
    public static func definitionVersions(sdkKey: String, keys: Set<Identifier>) -> Self {
        Self(.definitionVersions(sdkKey: sdkKey, keys: keys)) { context in
            var versions = DefinitionVersions(datafiles: [], rows: [])
            let datafiles = SQLQuery(
                "datafile_versions",
                """
                SELECT version, sdk_key, revision, NULL, stored_at, author, base FROM datafiles
                WHERE sdk_key = $1 ORDER BY version DESC
                """, .text(sdkKey))
            // No stored key has a NUL, which PostgreSQL refuses.
            let keys = keys.filter { !$0.string.utf8.contains(0) }.sorted()
            let condition: String
            let parameter: SQLValue
            switch context.dialect {
            case .sqlite:
                condition = "IN (SELECT value FROM json_each($2))"
                parameter = .text(JSONValue.array(keys.map { .string($0.string) }).encoded())
            case .postgreSQL:
                condition = "= ANY($2)"
                parameter = .texts(keys.map(\.string))
            }
            let rows = SQLQuery(
                "definition_versions",
                """
                SELECT \(DatafileParts.Element.columns), until FROM definitions
                WHERE sdk_key = $1 AND key \(condition)
                """, .text(sdkKey), parameter)
            return Reading([
                (datafiles, { versions.datafiles.append(StoredDatafile($0)) }),
                (rows, { versions.rows.append(DefinitionVersions.Row($0)) }),
            ]) { .value(versions) }
        }
    }
}

extension DefinitionVersions.Row {
    /// - Parameter row: the columns of an element, and then its end.
    fileprivate init(_ row: any Row) {
        self.init(
            DatafileParts.Element(row), version: row.bounded(4), until: row.isNull(5) ? nil : row.bounded(5))
    }
}
