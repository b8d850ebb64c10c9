import Storage

/// Reads and writes the data that all users share (projects, datafiles, attributes) and sticky documents, for the rules
/// in `Storage`.
extension WriteTransaction {
    /// Performs a write that a rule has requested.
    ///
    /// - Parameter datafiles: the number of datafiles that are kept per project.
    func perform(_ write: SharedRecords.Write, keeping datafiles: Int) throws(SQLiteError) {
        for statement in SharedRecords.statements(write, keeping: datafiles, at: now, .sqlite) {
            switch statement {
            case .insert(let rows, let table): for row in rows { try insert(row, into: table) }
            case .run(let query): try run(query)
            }
        }
    }

    /// The result of a ``SharedChange``.
    struct SharedResult<Value: Sendable>: Sendable {
        let value: Value
        /// Whether the change deletes an attribute. The users' values of it must be deleted later.
        let deletesAttribute: Bool
    }

    /// Applies a change: reads all parts that its rule needs, calls the rule, and performs the writes that the rule
    /// requests.
    ///
    /// - Throws: `StorageError` if the rule refuses the change; ``SQLiteError``.
    func apply<Value>(
        _ change: SharedChange<Value>, _ settings: StoreSettings
    ) throws -> SharedResult<Value> {
        if let userID = change.userID { try expectNotErased(userID) }
        let now = now
        var records = SharedRecords()
        for part in change.parts {
            for (query, take) in SharedRecords.statements(part, .sqlite) {
                try connection.run(query) { take($0, &records) }
            }
        }
        let value = try change.rule(&records, RuleContext(settings.rules, at: now))
        var deletesAttribute = false
        for write in records.writes {
            try perform(write, keeping: settings.datafileHistory)
            switch write {
            case .recordAudit: noteAuditEntry()
            case .deleteAttribute: deletesAttribute = true
            // The write may have changed what later changes of this transaction have read.
            default: forgetDefinitions()
            }
        }
        if records.writes.contains(where: \.changesProjects) { try changedProjects() }
        return SharedResult(value: value, deletesAttribute: deletesAttribute)
    }
}
