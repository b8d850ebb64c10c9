import Storage

/// Reads and writes what all users share, and sticky documents, for the rules in `Storage`.
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

    /// Applies a change: reads all parts that its rule needs, calls the rule, and performs the writes that it requests.
    ///
    /// - Returns: the result of the change, and whether it deletes an attribute, whose values must be deleted later.
    func apply<Value>(
        _ change: SharedChange<Value>, _ settings: StoreSettings
    ) throws -> (value: Value, removesAttribute: Bool) {
        if let userID = change.userID { try expectNotErased(userID) }
        let now = now
        var records = SharedRecords()
        for part in change.parts {
            for (query, take) in SharedRecords.statements(part, .sqlite) {
                try connection.run(query) { take($0, &records) }
            }
        }
        let value = try change.rule(&records, RuleContext(settings.rules, at: now))
        var removesAttribute = false
        for write in records.writes {
            try perform(write, keeping: settings.datafileHistory)
            switch write {
            case .recordAudit: recorded()
            case .deleteAttribute: removesAttribute = true
            default: forgetDefinitions()
            }
        }
        if records.writes.contains(where: \.changesProjects) { try changedProjects() }
        return (value, removesAttribute)
    }
}
