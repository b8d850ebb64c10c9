public import Bucketing
import JSON

/// Some elements of a project, in all its datafiles that are kept.
public struct DefinitionVersions: Sendable {
    /// An element as several datafiles in a row have it.
    public struct Row: Sendable {
        public var element: DatafileParts.Element
        /// The version of the datafile that brought it.
        public var version: Int64
        /// The version of the datafile that replaced or removed it; `nil` if the newest one has it.
        public var until: Int64?

        public init(_ element: DatafileParts.Element, version: Int64, until: Int64?) {
            self.element = element
            self.version = version
            self.until = until
        }
    }

    /// Newest first. Those in parts are without elements, uploaded ones without content.
    public var datafiles: [StoredDatafile]
    /// The elements of datafiles in parts.
    public var rows: [Row]

    public init(datafiles: [StoredDatafile], rows: [Row]) {
        self.datafiles = datafiles
        self.rows = rows
    }

    /// Returns those of the elements that a datafile in parts has.
    public func elements(in version: Int64) -> [DatafileParts.Element] {
        rows.lazy.filter { $0.version <= version && ($0.until ?? .max) > version }.map(\.element)
    }
}

extension StoreQuery<DefinitionVersions> {
    /// Reads all datafiles of a project that are kept, with the elements of all lists that have one of some keys.
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
            let (given, parameter): (String, SQLValue) =
                switch context.dialect {
                case .sqlite:
                    (
                        "IN (SELECT value FROM json_each($2))",
                        .text(
                            String(decoding: JSONValue.array(keys.map { .string($0.string) }).encoded(), as: UTF8.self))
                    )
                case .postgreSQL: ("= ANY($2)", .texts(keys.map { $0.string }))
                }
            let rows = SQLQuery(
                "definition_versions",
                """
                SELECT \(DatafileParts.Element.columns), version, until FROM definitions
                WHERE sdk_key = $1 AND key \(given)
                """, .text(sdkKey), parameter)
            return Reading([
                (datafiles, { versions.datafiles.append(StoredDatafile($0)) }),
                (
                    rows,
                    {
                        versions.rows.append(
                            .init(
                                DatafileParts.Element($0), version: $0.bounded(4),
                                until: $0.isNull(5) ? nil : $0.bounded(5)))
                    }
                ),
            ]) { .value(versions) }
        }
    }
}
