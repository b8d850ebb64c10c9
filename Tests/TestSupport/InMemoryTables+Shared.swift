import Bucketing
import Chronology
import JSON
import Storage

/// What all users share, and sticky documents.
extension InMemoryTables {
    mutating func apply<Value>(_ change: SharedChange<Value>, at now: Instant) throws(StorageError) -> Value {
        var records = SharedRecords()
        for part in change.parts { read(part, into: &records) }
        let value = try change.rule(&records, RuleContext(rules, at: now))
        for write in records.writes { perform(write, at: now) }
        if records.writes.contains(where: \.changesProjects) { projectChanges += 1 }
        return value
    }

    func activeDatafile(_ sdkKey: String) -> StoredDatafile? {
        datafiles.last { $0.sdkKey == sdkKey }
    }

    private func read(_ part: SharedRecords.Part, into records: inout SharedRecords) {
        switch part {
        case .projects: (records.projects, records.newestDatafile) = (projects, newestDatafile)
        case .activeDatafile(let sdkKey): records.activeDatafile = activeDatafile(sdkKey)
        case .latestPeriods(let sdkKey, _):
            records.latestPeriods = periods.compactMapValues { $0.last { $0.sdkKey == sdkKey } }
            records.latestStatuses = statuses.compactMapValues { $0.last { $0.sdkKey == sdkKey } }
        case .series: (records.series, records.newestSeries) = (series, newestSeries)
        case .attribute(let name):
            records.attributes[name] = definitions.first { $0.name == name }
            records.newestAttribute = Int64(lastAttribute)
        case .segment(let name): records.segments[name] = segments[name]?.conditions
        case .tallies(let experimentID): records.tallies[experimentID] = tallies(of: experimentID)
        case .stickyDocument(let key, _):
            records.stickyDocument = stickyDocuments[key].map { String(decoding: $0.content.encoded(), as: UTF8.self) }
        case .proposal(let id): records.proposal = proposals.first { $0.id == id }?.withoutBody
        case .look(let sdkKey, let experimentID):
            records.look = looks.first { $0.sdkKey == sdkKey && $0.experimentID == experimentID }
        case .finding(let sdkKey, let experimentID):
            records.finding = findings.first { $0.sdkKey == sdkKey && $0.experimentID == experimentID }
        case .webhook(let key):
            (records.webhooks[key], records.lastAuditEntry) = (webhooks[key], Int64(auditEntries.count))
        }
    }

    private mutating func perform(_ write: SharedRecords.Write, at now: Instant) {
        hasWritten = true
        switch write {
        case .putProject(let record):
            if record.isDefault { for index in projects.indices { projects[index].isDefault = false } }
            projects.removeAll { $0.sdkKey == record.sdkKey }
            projects.append(record)
            projects.sort { $0.sdkKey < $1.sdkKey }
        case .deleteProject(let sdkKey):
            projects.removeAll { $0.sdkKey == sdkKey }
            datafiles.removeAll { $0.sdkKey == sdkKey }
            forcedVariations.removeAll { $0.sdkKey == sdkKey }
            lastUses = lastUses.filter { $0.key.sdkKey != sdkKey }
            proposals.removeAll { $0.sdkKey == sdkKey }
            looks.removeAll { $0.sdkKey == sdkKey }
            findings.removeAll { $0.sdkKey == sdkKey }
            webhooks = webhooks.filter { $0.value.sdkKey != sdkKey }
        case .insertDatafile(let datafile, _): insert(datafile)
        case .insertPeriods(let added):
            for (experimentID, period) in added { periods[experimentID, default: []].append(period) }
        case .insertStatuses(let added):
            for (experimentID, period) in added { statuses[experimentID, default: []].append(period) }
        case .insertFrozenResults(let rows): frozenResults += rows
        case .putLastUses(let uses): for use in uses { lastUses[use.subject] = use.day }
        case .insertProposal(let proposal):
            proposals.append(proposal)
            let kept = Set(proposals.filter { $0.sdkKey == proposal.sdkKey }.suffix(Proposal.limit).map(\.id))
            proposals.removeAll { $0.sdkKey == proposal.sdkKey && !kept.contains($0.id) }
        case .renewGeneration(let renewal):
            guard renewal.former == epoch else { return }
            formerEpochs.formUnion([epoch, renewal.presented].filter { $0 != 0 })
            epoch += 1
        case .putLook(let look):
            looks.removeAll { $0.sdkKey == look.sdkKey && $0.experimentID == look.experimentID }
            looks.append(look)
        case .putFinding(let finding):
            findings.removeAll { $0.sdkKey == finding.sdkKey && $0.experimentID == finding.experimentID }
            findings.append(finding)
        case .putWebhook(let webhook): webhooks[webhook.key] = webhook
        case .updateWebhook(let key, let state): webhooks[key]?.state = state
        case .deleteWebhook(let key): webhooks[key] = nil
        case .updateProposal(let proposal):
            for index in proposals.indices where proposals[index].id == proposal.id {
                proposals[index].status = proposal.status
                proposals[index].decision = proposal.decision
            }
        case .putSeries(let put): setSeries(put)
        case .deleteSums(let sums, let number):
            delete(sums)
            series.removeAll { $0.number == number }
        case .renumberSeries(let number): newestSeries = number
        case .insertAttribute(let definition):
            lastAttribute = definition.number
            definitions.append(definition)
        case .updateAttribute(let definition):
            definitions.removeAll { $0.name == definition.name }
            definitions.append(definition)
        case .deleteAttribute(let definition):
            definitions.removeAll { $0.name == definition.name }
            for (userID, record) in attributes {
                let rest = record.applying([definition.number: .remove]) { _ in }
                attributes[userID] = rest.isEmpty ? nil : rest
            }
        case .putSegment(let segment): segments[segment.name] = segment
        case .deleteSegment(let name): segments[name] = nil
        case .putStickyDocument(let document): stickyDocuments[document.key] = document
        case .deleteStickyDocument(let key): stickyDocuments[key] = nil
        case .recordAudit(let note, let author): record(note, by: author, at: now)
        }
    }

    private mutating func insert(_ datafile: StoredDatafile) {
        newestDatafile = datafile.version
        datafiles.append(datafile)
        let history = datafiles.filter { $0.sdkKey == datafile.sdkKey }
        let lastOfStart = history.last { $0.author == Author.processUser.name }?.version
        let kept = Set(history.suffix(max(1, datafileHistory)).map(\.version) + [lastOfStart ?? 0])
        datafiles.removeAll { $0.sdkKey == datafile.sdkKey && !kept.contains($0.version) }
    }
}

extension InMemoryTables {
    func definitionVersions(of sdkKey: String, _ keys: Set<Identifier>) -> DefinitionVersions {
        var versions = DefinitionVersions(datafiles: [], rows: [])
        var valid: [DatafileParts.Name: DefinitionVersions.Row] = [:]
        for var datafile in datafiles where datafile.sdkKey == sdkKey {
            let parts = datafile.body.parts(after: nil)
            let elements = (parts?.elements ?? []).filter { keys.contains($0.name.key) }
            let known = Dictionary(elements.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
            for var row in valid.values where known[row.element.name] != row.element {
                row.until = datafile.version
                versions.rows.append(row)
                valid[row.element.name] = nil
            }
            for element in elements where valid[element.name] == nil {
                valid[element.name] = .init(element, version: datafile.version, until: nil)
            }
            datafile.body = parts.map { .parts(DatafileParts(base: $0.base, elements: [])) } ?? .whole([])
            versions.datafiles.insert(datafile, at: 0)
        }
        versions.rows += valid.values
        return versions
    }
}

extension Proposal {
    var withoutBody: Proposal {
        var proposal = self
        proposal.body = nil
        return proposal
    }
}
