import Bucketing
import Storage

/// Projects and their datafiles.
extension InMemoryTables {
    func activeDatafile(_ sdkKey: String) -> StoredDatafile? {
        datafiles.last { $0.sdkKey == sdkKey }
    }

    mutating func put(
        _ datafile: StoredDatafile, _ allocations: [Identifier: TrafficAllocation], replacing: Int64?,
        makesProject: Bool, note: AuditNote, by author: Author
    ) -> StoredDatafile? {
        let former = activeDatafile(datafile.sdkKey)
        if let replacing, former?.version ?? 0 != replacing { return nil }
        switch ProjectRules.activate(
            datafile.sdkKey, makesProject: makesProject, among: projects, at: datafile.storedAt)
        {
        case .known: break
        case .new(let record): set(record)
        case .refused: return nil
        }
        let stored = append(datafile)
        let latest = periods.compactMapValues { $0.last { $0.sdkKey == stored.sdkKey } }
        for (experimentID, period) in AllocationRules.periods(begunBy: stored, allocations, after: latest) {
            periods[experimentID, default: []].append(period)
        }
        let history = datafiles.filter { $0.sdkKey == datafile.sdkKey }
        let lastOfStart = history.last { $0.author == Author.processUser.name }?.version
        let kept = Set(history.suffix(max(1, datafileHistory)).map(\.version) + [lastOfStart ?? 0])
        datafiles.removeAll { $0.sdkKey == datafile.sdkKey && !kept.contains($0.version) }
        record(note.activating(stored, replacing: former), by: author, at: datafile.storedAt)
        return stored
    }

    private mutating func append(_ datafile: StoredDatafile) -> StoredDatafile {
        newestDatafile += 1
        projectChanges += 1
        var stored = datafile
        stored.version = newestDatafile
        datafiles.append(stored)
        return stored
    }

    private mutating func set(_ record: ProjectRecord) {
        if record.isDefault { for index in projects.indices { projects[index].isDefault = false } }
        projects.removeAll { $0.sdkKey == record.sdkKey }
        projects.append(record)
        projects.sort { $0.sdkKey < $1.sdkKey }
    }

    mutating func put(
        _ change: ProjectDefinition, datafile: StoredDatafile, by author: Author
    ) -> ProjectDefinitionResult {
        let result = ProjectRules.apply(change, among: projects, at: datafile.storedAt)
        let former = projects.first { $0.sdkKey == change.sdkKey }
        guard let note = AuditNote(result, replacing: former) else { return result }
        set(result.record)
        if case .created = result { _ = append(datafile) } else { projectChanges += 1 }
        record(note, by: author, at: datafile.storedAt)
        return result
    }

    mutating func removeProject(
        _ sdkKey: String, expecting version: Int64, by author: Author, at now: Timestamp
    ) -> ProjectRemovalResult {
        let active = activeDatafile(sdkKey)?.version ?? 0
        let result = ProjectRules.remove(sdkKey, expecting: version, active: active, among: projects)
        guard result == .removed, let former = projects.first(where: { $0.sdkKey == sdkKey }) else { return result }
        projects.removeAll { $0.sdkKey == sdkKey }
        datafiles.removeAll { $0.sdkKey == sdkKey }
        forcedVariations.removeAll { $0.sdkKey == sdkKey }
        projectChanges += 1
        record(AuditNote(removing: former), by: author, at: now)
        return result
    }
}
