import Bucketing
import Chronology
import Storage

/// The statements that read and write the data that all users share, and sticky documents, for the rules in `Storage`.
extension SharedRecords {
    /// Returns the statements for the parts that a ``ProjectChange`` needs: the statements that lock the parts, and the
    /// statements that read them.
    static func readings(_ parts: [Part]) -> (locks: [Step], reads: [Step]) {
        var locks: [Step] = []
        var reads: [Step] = []
        for part in parts {
            let found = statements(part, .postgreSQL)
            guard case .stickyDocument(let key, let isChanged) = part else {
                reads += found
                continue
            }
            // A missing document is created empty, so that it can be locked.
            if isChanged { locks.append((StickyDocumentRows.create(key), { _, _ in })) }
            locks += found.map { ($0.query.locked, $0.take) }
        }
        guard locks.isEmpty else { return (locks, reads) }
        // A change without sticky documents takes locks that only one transaction of all servers has at a time.
        if parts.contains(.projects) { locks.append((ProjectStateRow.lockNewest, { _, _ in })) }
        if parts.contains(.series) { locks.append((TransactionEffects.lockNumbers, { _, _ in })) }
        locks.append((ProjectStateRow.readLocked(), ProjectStateRow.take))
        return (locks, reads)
    }

    /// Returns the statements that perform the writes of a rule.
    func queries(_ settings: StoreSettings, at now: Instant) -> [SQLQuery] {
        let queries = writes.flatMap { write in
            Self.statements(write, keeping: settings.datafileHistory, at: now, .postgreSQL).map { statement in
                switch statement {
                case .insert(let rows, let table): SQLQuery.insert(rows, into: table)
                case .run(let query): query
                }
            }
        }
        guard writes.contains(where: \.changesProjects) else { return queries }
        let changes = writes.compactMap { write -> SQLQuery? in
            switch write {
            case .insertDatafile(let datafile, _): ProjectStateRow.newestDatafile(.integer(datafile.version))
            case .insertAttribute(let definition): ProjectStateRow.newestAttribute(.integer(Int(definition.number)))
            default: nil
            }
        }
        return queries + (changes.isEmpty ? [ProjectStateRow.changed()] : changes) + [ProjectStateRow.notify()]
    }
}

/// The `attributes` and `attribute_removals` tables.
enum AttributeRows {
    /// Selects the numbers and names of all attributes.
    static let names = Statement("attribute_names", "SELECT number, name FROM attributes")
    /// Selects an attribute whose values are being deleted, and the last user whose value was deleted.
    static let removals = Statement(
        "attribute_removals", "SELECT number, after_user_id FROM attribute_removals ORDER BY number LIMIT 1")
    /// Records the last user whose value was deleted.
    static let advanceRemoval = Statement(
        "advance_attribute_removal",
        "UPDATE attribute_removals SET after_user_id = $2 WHERE number = $1 AND after_user_id < $2")
    /// Ends the deletion of an attribute's values.
    static let endRemoval = Statement("end_attribute_removal", "DELETE FROM attribute_removals WHERE number = $1")
}

/// The `sticky_documents` table.
enum StickyDocumentRows {
    /// Creates an empty document, unless there is one.
    static func create(_ key: StickyDocumentKey) -> SQLQuery {
        create(.text(key.attributeValue.string), .text(key.attributeName.string))
    }

    private static let create = Statement(
        "create_sticky_document",
        """
        INSERT INTO sticky_documents (attribute_value, attribute_name, assignments) VALUES ($1, $2, '{}')
        ON CONFLICT (attribute_value, attribute_name) DO NOTHING
        """)
}
