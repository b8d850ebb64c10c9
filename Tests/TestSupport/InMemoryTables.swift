import Bucketing
import JSON
import Storage

/// What an ``InMemoryStore`` keeps: a dictionary for each table of a database. It applies the rules of `Storage`, as every
/// store does.
struct InMemoryTables {
    private(set) var profiles: [Identifier: ProfileRecord] = [:]
    private(set) var attributes: [Identifier: AttributeRecord] = [:]
    private(set) var stickyDocuments: [StickyDocumentKey: StickyDocument] = [:]
    private(set) var exposures: [StoredExposure] = []
    private(set) var goalEvents: [StoredGoalEvent] = []
    private(set) var auditEntries: [AuditEntry] = []
    var forcedVariations: [ForcedVariation] = []
    var datafiles: [StoredDatafile] = []
    var projects: [ProjectRecord] = []
    var newestDatafile: Int64 = 0
    private(set) var definitions: [AttributeDefinition] = []
    private(set) var segments: [Identifier: Segment] = [:]
    var projectChanges: Int64 = 0
    private(set) var removals: [UserRemoval] = []
    var metrics = StoreMetrics()
    private var totals: [Identifier: [UserRecords.TotalKey: UserGoal]] = [:]
    private var users: [TallyChanges.Users: UserCounts] = [:]
    private var goals: [TallyChanges.Goal: GoalTally] = [:]
    var periods: [Identifier: [AllocationPeriod]] = [:]
    private var lastNumber: Int64 = 0
    private var lastAttribute: UInt32 = 0
    /// Whether the present change has written something.
    private var hasWritten = false

    let rules: ProfileRules
    let datafileHistory: Int

    init(rules: ProfileRules, datafileHistory: Int) {
        self.rules = rules
        self.datafileHistory = datafileHistory
    }

    /// Makes one change and counts it.
    mutating func change<Value>(
        _ body: (inout InMemoryTables) throws(StorageError) -> Value
    ) -> Result<Value, StorageError> {
        hasWritten = false
        do throws(StorageError) {
            let value = try body(&self)
            if hasWritten {
                metrics.changes += 1
                metrics.commits += 1
            }
            return .success(value)
        } catch {
            metrics.failedChanges += 1
            return .failure(error)
        }
    }

    private mutating func nextNumber() -> Int64 {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Users

    mutating func apply(
        _ change: ProfileChange, by author: Author?, at now: Timestamp
    ) throws(StorageError) -> ProfileChangeResult {
        var anonymous: ProfileRecord?
        if case .assign(_, let version, let anonymousID) = change.operation {
            guard version == newestDatafile else { throw .staleDatafile }
            anonymous = anonymousID.flatMap { profiles[$0] }
        }
        if change.concernsProfileOnly {
            let stored = profiles[change.userID]
            let outcome = try rules.apply(change, to: stored, anonymous: anonymous, at: now)
            if case .put(let record) = outcome.effect { setProfile(record, of: change.userID) }
            return outcome.result
        }
        let rules = StoreRules(profiles: rules)
        let result = try apply(to: change.userID, at: now) { records, tallies throws(StorageError) in
            try rules.apply(change, by: author, to: &records, at: now, &tallies)
        }
        if change.operation.isErasure { removed(ErasureRules.hash(change.userID)) }
        return result
    }

    mutating func apply(
        _ merge: ProfileMerge, by author: Author, at now: Timestamp
    ) throws(StorageError) -> ProfileMergeResult {
        let rules = MergeRules(profiles: rules)
        var account = UserRecords(userID: merge.userID)
        var anonymous = UserRecords(userID: merge.anonymousID)
        var tallies = TallyChanges()
        while true {
            if let result = try rules.apply(merge, by: author, to: &account, &anonymous, at: now, &tallies) {
                for write in account.writes { perform(write, of: merge.userID, at: now) }
                for write in anonymous.writes { perform(write, of: merge.anonymousID, at: now) }
                add(tallies)
                if result.changed { removed(ErasureRules.mergeHash(merge.anonymousID)) }
                return result
            }
            for part in account.takeMissing() { read(part, into: &account) }
            for part in anonymous.takeMissing() { read(part, into: &anonymous) }
        }
    }

    private mutating func removed(_ mark: Int64) {
        removals.append(UserRemoval(mark: mark, time: Int64(removals.count) + 1))
    }

    mutating func apply(_ event: UserEvent, at now: Timestamp) -> EventOutcome {
        let rules = rules
        return apply(to: event.userID, at: now) { EventRules.apply(event, to: &$0, &$1, rules, at: now) }
    }

    mutating func force(_ variation: ForcedVariation, isRemoved: Bool, by author: Author, at now: Timestamp)
        -> Identifier?
    {
        apply(to: variation.userID, at: now) { records, tallies in
            StoreRules.force(
                isRemoved ? nil : variation.variationKey, experimentKey: variation.experimentKey,
                sdkKey: variation.sdkKey,
                by: author, in: &records, &tallies)
        }.former
    }

    mutating func apply(_ change: AttributeChange) -> AttributeChangeResult {
        let numbers = Set(definitions.map(\.number))
        let outcome = AttributeRules.apply(change, to: attributes[change.userID], isDefined: numbers.contains)
        switch outcome.effect {
        case .none: return outcome.result
        case .put(let record): attributes[change.userID] = record
        case .delete: attributes[change.userID] = nil
        }
        hasWritten = true
        return outcome.result
    }

    mutating func apply(_ change: StickyDocumentChange) throws(StorageError) -> StickyDocument {
        let stored = stickyDocuments[change.key]
        let document = try StickyDocumentRules.merge(change, into: stored, limit: rules.assignmentLimit)
        if document != stored ?? StickyDocument(key: change.key) {
            stickyDocuments[change.key] = document
            hasWritten = true
        }
        return document
    }

    mutating func removeStickyDocument(_ key: StickyDocumentKey, by author: Author, at now: Timestamp) -> Bool {
        guard let former = stickyDocuments.removeValue(forKey: key) else { return false }
        record(AuditNote(removing: key, former), by: author, at: now)
        return true
    }

    private mutating func apply<Value, Failure>(
        to userID: Identifier, at now: Timestamp,
        _ rule: (inout UserRecords, inout TallyChanges) throws(Failure) -> Value?
    ) throws(Failure) -> Value {
        var records = UserRecords(userID: userID)
        var tallies = TallyChanges()
        while true {
            if let value = try rule(&records, &tallies) {
                for write in records.writes { perform(write, of: userID, at: now) }
                add(tallies)
                return value
            }
            for part in records.takeMissing() { read(part, into: &records) }
        }
    }

    func records(of userID: Identifier) -> UserRecords {
        var records = UserRecords(userID: userID)
        for part in UserRecords.everything { read(part, into: &records) }
        return records
    }

    private func read(_ part: UserRecords.Part, into records: inout UserRecords) {
        let userID = records.userID
        var events: some Sequence<GoalEvent> { goalEvents.lazy.map(\.event).filter { $0.userID == userID } }
        switch part {
        case .profile: records.profile = profiles[userID].map { .present($0) } ?? .absent
        case .attributes: records.attributes = attributes[userID].map { .present($0) } ?? .absent
        case .definedAttributes: records.definedAttributes = Set(definitions.map(\.number))
        case .otherRecords:
            func several(_ numbers: some Sequence<Int64>) -> UserRecords.Several {
                numbers.reduce(into: .init()) { $0 = .init(count: $0.count + 1, newest: max($0.newest, $1)) }
            }
            records.otherRecords = .init(
                goalEvents: several(goalEvents.lazy.filter { $0.event.userID == userID }.map(\.number)),
                auditEntries: several(auditEntries.lazy.filter { $0.userID == userID }.map(\.id)))
        case .stickyDocuments:
            records.stickyDocuments = stickyDocuments.values.filter { $0.key.attributeValue == userID }
                .sorted { $0.key.attributeName < $1.key.attributeName }.map { document in
                    .init(
                        attributeName: document.key.attributeName.string,
                        content: String(decoding: document.content.encoded(), as: UTF8.self))
                }
        case .forcedVariations: records.forcedVariations = forcedVariations.filter { $0.userID == userID }
        case .exposures: records.exposures = exposures.filter { $0.exposure.userID == userID }
        case .exposure(let experimentID):
            records.exposures = exposures.filter {
                $0.exposure.userID == userID && $0.exposure.experimentID == experimentID
            }
        case .totals(let experimentID):
            for (key, total) in totals[userID] ?? [:] where key.experimentID == experimentID {
                records.totals[key] = total
            }
        case .goalTotals(let goal, let experimentIDs):
            for (key, total) in totals[userID] ?? [:] where key.goal == goal && experimentIDs.contains(key.experimentID)
            {
                records.totals[key] = total
            }
        case .goalEvents(let time):
            records.goalEvents = events.filter { $0.happenedAt >= time }.map {
                .init(goal: $0.goal, value: $0.value, happenedAt: $0.happenedAt, senderID: $0.senderID)
            }
        case .goalEvent(let senderID): records.hasGoalEvent = events.contains { $0.senderID == senderID }
        case .periods(let experimentID): records.periods = periods[experimentID] ?? []
        case .newestDatafile: records.newestDatafile = newestDatafile
        }
    }

    private mutating func perform(_ write: UserRecords.Write, of userID: Identifier, at now: Timestamp) {
        hasWritten = true
        switch write {
        case .putProfile(let record, _): setProfile(record, of: userID)
        case .deleteProfile: setProfile(nil, of: userID)
        case .expectNewestDatafile: break
        case .putForcedVariation(let variation):
            remove(variation)
            forcedVariations.append(variation)
            projectChanges += 1
        case .deleteForcedVariation(let variation):
            remove(variation)
            projectChanges += 1
        case .putExposure(var stored):
            let experimentID = stored.exposure.experimentID
            exposures.removeAll { $0.exposure.userID == userID && $0.exposure.experimentID == experimentID }
            stored.number = nextNumber()
            exposures.append(stored)
        case .putTotal(let total, let key): totals[userID, default: [:]][key] = total
        case .deleteTotals(let experimentID):
            totals[userID] = totals[userID]?.filter { $0.key.experimentID != experimentID }
        case .insertGoalEvent(let event): goalEvents.append(StoredGoalEvent(number: nextNumber(), event: event))
        case .putPeriod(let period, let experimentID):
            let known = periods[experimentID] ?? []
            if !known.contains(where: { $0.number == period.number }) { periods[experimentID] = known + [period] }
        case .putAttributes(let record): attributes[userID] = record
        case .takeOver(let other): takeOver(other, userID)
        case .eraseOtherRecords: eraseOtherRecords(of: userID)
        case .eraseStickyDocuments: stickyDocuments = stickyDocuments.filter { $0.key.attributeValue != userID }
        case .recordAudit(let note, let author): record(note, by: author, at: now)
        }
    }

    private mutating func setProfile(_ record: ProfileRecord?, of userID: Identifier) {
        let former = profiles[userID]
        profiles[userID] = record
        metrics.profiles += (record == nil ? 0 : 1) - (former == nil ? 0 : 1)
        metrics.assignments += (record?.count ?? 0) - (former?.count ?? 0)
        hasWritten = true
    }

    private mutating func remove(_ variation: ForcedVariation) {
        forcedVariations.removeAll {
            $0.userID == variation.userID && $0.sdkKey == variation.sdkKey
                && $0.experimentKey == variation.experimentKey
        }
    }

    private mutating func eraseOtherRecords(of userID: Identifier) {
        if forcedVariations.contains(where: { $0.userID == userID }) { projectChanges += 1 }
        forcedVariations.removeAll { $0.userID == userID }
        attributes[userID] = nil
        exposures.removeAll { $0.exposure.userID == userID }
        goalEvents.removeAll { $0.event.userID == userID }
        totals[userID] = nil
        for index in auditEntries.indices where auditEntries[index].userID == userID { auditEntries[index].anonymize() }
    }

    private mutating func takeOver(_ other: Identifier, _ userID: Identifier) {
        let senderIDs = Set(goalEvents.filter { $0.event.userID == userID }.compactMap(\.event.senderID))
        goalEvents.removeAll {
            $0.event.userID == other && $0.event.senderID.map { senderIDs.contains($0) } ?? false
        }
        for index in goalEvents.indices where goalEvents[index].event.userID == other {
            goalEvents[index].event.userID = userID
        }
        for index in auditEntries.indices where auditEntries[index].userID == other {
            auditEntries[index].userID = userID
        }
    }

    // MARK: Tallies

    private mutating func add(_ changes: TallyChanges) {
        for (key, change) in changes.users { users[key, default: UserCounts()] += change }
        for (key, change) in changes.goals { goals[key] = goals[key].map { $0 + change } ?? change }
    }

    func tally(experimentID: Identifier, goal: Identifier) -> ExperimentTally {
        ExperimentTally(
            periods: periods[experimentID] ?? [],
            users: users.filter { $0.key.experimentID == experimentID }.map { ($0.key.cohort, $0.value) },
            goals: goals.filter { $0.key.experimentID == experimentID && $0.key.goal == goal }.map {
                ($0.key.variationID, $0.key.day, $0.value)
            })
    }

    func goals(experimentID: Identifier, limit: Int) -> [Identifier] {
        let found = Set(goals.keys.filter { $0.experimentID == experimentID }.map(\.goal))
        return Array(found.sorted().prefix(limit))
    }

    // MARK: Projects

    mutating func record(_ note: AuditNote, by author: Author, at now: Timestamp) {
        var entry = AuditEntry(note, by: author, at: now)
        entry.id = Int64(auditEntries.count) + 1
        auditEntries.append(entry)
        metrics.auditEntries += 1
        hasWritten = true
    }

    mutating func define(
        _ wanted: AttributeDefinition, by author: Author, at now: Timestamp
    ) -> AttributeDefinitionResult {
        let former = definitions.first { $0.name == wanted.name }
        var result = AttributeRules.define(wanted, replacing: former)
        switch result {
        case .created:
            lastAttribute += 1
            result = .created(wanted.numbered(lastAttribute))
            definitions.append(wanted.numbered(lastAttribute))
            projectChanges += 1
        case .changed(let definition):
            definitions.removeAll { $0.name == wanted.name }
            definitions.append(definition)
            projectChanges += 1
        case .unchanged, .otherType: break
        }
        if let note = AuditNote(result, replacing: former) { record(note, by: author, at: now) }
        return result
    }

    mutating func removeAttribute(_ name: Identifier, by author: Author, at now: Timestamp) -> Bool {
        guard let former = definitions.first(where: { $0.name == name }) else { return false }
        definitions.removeAll { $0.name == name }
        for (userID, record) in attributes {
            let rest = record.applying([former.number: .remove]) { _ in }
            attributes[userID] = rest.isEmpty ? nil : rest
        }
        projectChanges += 1
        record(AuditNote(removing: former), by: author, at: now)
        return true
    }

    mutating func put(_ segment: Segment, by author: Author, at now: Timestamp) -> Bool {
        let former = segments[segment.name]
        guard former?.conditions != segment.conditions else { return false }
        segments[segment.name] = segment
        projectChanges += 1
        record(AuditNote(segment, replacing: former?.conditions), by: author, at: now)
        return former == nil
    }

    mutating func removeSegment(_ name: Identifier, by author: Author, at now: Timestamp) -> Bool {
        guard let former = segments.removeValue(forKey: name) else { return false }
        projectChanges += 1
        record(AuditNote(.segmentDelete, of: name.string, before: former.conditions), by: author, at: now)
        return true
    }

    func page(_ matcher: SegmentMatcher, _ scope: SegmentScan) -> SegmentPage {
        var page = SegmentPage()
        var first: Identifier?
        var isListing = false
        if case .users(let after) = scope { (first, isListing) = (after, true) }
        for userID in attributes.keys.sorted() where first.map({ $0 < userID }) ?? true {
            page.examined += 1
            let bytes = attributes[userID]?.bytes ?? []
            guard bytes.withUnsafeBytes({ matcher.matches($0) }) else { continue }
            page.matches += 1
            if isListing { page.userIDs.append(userID) }
        }
        return page
    }
}
