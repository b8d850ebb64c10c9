import Bucketing
import Chronology
import JSON
import Storage

/// What an ``InMemoryStore`` keeps: a dictionary for each table of a database. It applies the rules of `Storage`, as every
/// store does.
struct InMemoryTables {
    private(set) var profiles: [Identifier: ProfileRecord] = [:]
    var attributes: [Identifier: AttributeRecord] = [:]
    var stickyDocuments: [StickyDocumentKey: StickyDocument] = [:]
    private(set) var exposures: [StoredExposure] = []
    private(set) var goalEvents: [StoredGoalEvent] = []
    private(set) var auditEntries: [AuditEntry] = []
    var forcedVariations: [ForcedVariation] = []
    var datafiles: [StoredDatafile] = []
    var projects: [ProjectRecord] = []
    var newestDatafile: Int64 = 0
    var definitions: [AttributeDefinition] = []
    var segments: [Identifier: Segment] = [:]
    var projectChanges: Int64 = 0
    private(set) var removals: [UserRemoval] = []
    private var removedUsers: [RemovedUser] = []
    var metrics = StoreMetrics()
    private var totals: [Identifier: [UserRecords.TotalKey: UserGoal]] = [:]
    private var users: [TallyChanges.Users: UserCounts] = [:]
    private var goals: [TallyChanges.Goal: GoalTally] = [:]
    var periods: [Identifier: [AllocationPeriod]] = [:]
    var statuses: [Identifier: [StatusPeriod]] = [:]
    var frozenResults: [FrozenRow] = []
    var lastUses: [LastUse.Subject: Int64] = [:]
    /// In the order of their creation.
    var proposals: [Proposal] = []
    var looks: [StoredLook] = []
    var findings: [StoredLook] = []
    var webhooks: [String: Webhook] = [:]
    var series: [TrackedSeries] = []
    var newestSeries: Int64 = 0
    /// Of the feed.
    var epoch: Int64 = 1
    /// Those that the feed had before, and others that were presented.
    var formerEpochs: Set<Int64> = []
    private var lastNumber: Int64 = 0
    var lastAttribute: UInt32 = 0
    private(set) var feed: [FeedRow] = []
    private var feedRemovals: [FeedRemoval] = []
    /// What the present change adds to the feed.
    private var feedEncoder = FeedEncoder()
    private var feedCauses: [FeedRemoval.Cause] = []
    private var feedTime: Instant = 0
    /// Whether the present change has written something.
    var hasWritten = false

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
        (feedEncoder, feedCauses) = (FeedEncoder(), [])
        do throws(StorageError) {
            let value = try body(&self)
            appendToFeed()
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

    // MARK: The feed

    private mutating func appendToFeed() {
        guard !feedEncoder.isEmpty else { return }
        let number = Int64(feed.count) + 1
        feed.append(FeedRow(number: number, recordedAt: feedTime, entries: feedEncoder.bytes))
        for cause in feedCauses {
            switch cause {
            case .erasure(let user):
                moveRemovals(of: user, to: nil)
                feedRemovals.append(FeedRemoval(userHash: user, number: number, accountHash: nil))
            case .merge(let user, let account):
                moveRemovals(of: user, to: account)
                feedRemovals.append(FeedRemoval(userHash: user, number: number, accountHash: account))
            }
        }
        for index in feed.indices {
            if let scrubbed = try? feed[index].scrubbed(by: feedRemovals) { feed[index] = scrubbed }
        }
    }

    private mutating func moveRemovals(of account: Int64, to other: Int64?) {
        feedRemovals = feedRemovals.map { removal in
            guard removal.accountHash == account else { return removal }
            return FeedRemoval(userHash: removal.userHash, number: removal.number, accountHash: other)
        }
    }

    // MARK: Users

    mutating func apply(
        _ change: ProfileChange, by author: Author?, at now: Instant
    ) throws(StorageError) -> ProfileChangeResult {
        var anonymous: ProfileRecord?
        if case .assign(_, let version, let anonymousID) = change.operation {
            guard version == newestDatafile else { throw .staleDatafile }
            anonymous = anonymousID.flatMap { profiles[$0] }
        }
        if change.concernsProfileOnly {
            let stored = profiles[change.userID]
            let outcome = try rules.apply(change, to: stored, anonymous: anonymous, at: now)
            if case .put(let record) = outcome.effect {
                setProfile(record, of: change.userID)
                feedEncoder.append(record, replacing: stored, of: change.userID)
                feedTime = now
            }
            return outcome.result
        }
        return try apply(.profile(change, by: author), at: now)
    }

    mutating func apply<Value>(_ change: UserChange<Value>, at now: Instant) throws(StorageError) -> Value {
        var records = change.userIDs.map { UserRecords(userID: $0) }
        var tallies = TallyChanges()
        while true {
            if let result = try change.rule(&records, &tallies, RuleContext(rules, at: now)) {
                for user in records {
                    for write in user.writes {
                        perform(write, of: user.userID, at: now)
                        feedEncoder.append(write, of: user.userID)
                        if let cause = FeedRemoval.Cause(write, of: user.userID) { feedCauses.append(cause) }
                    }
                    feedTime = now
                }
                add(tallies)
                return result
            }
            for index in records.indices {
                for part in records[index].takeMissing() { read(part, into: &records[index]) }
            }
        }
    }

    private func records(of userID: Identifier) -> UserRecords {
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
        case .definedAttributes:
            records.definedAttributes = Dictionary(
                definitions.map { ($0.number, $0.name) }, uniquingKeysWith: { first, _ in first })
        case .otherRecords:
            func several(_ numbers: some Sequence<Int64>) -> UserRecords.Several {
                numbers.reduce(into: .init()) { $0 = .init(count: $0.count + 1, newest: max($0.newest, $1)) }
            }
            records.otherRecords = .init(
                goalEvents: several(goalEvents.lazy.filter { $0.event.userID == userID }.map(\.number)),
                auditEntries: several(auditEntries.lazy.filter { $0.userID == userID }.map(\.id)))
            records.otherRecords.mergesIntoOthers = auditEntries.count { entry in
                var anonymized = entry
                anonymized.anonymizeMerge(of: userID)
                return anonymized.after != entry.after
            }
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
        case .someTotals(let keys):
            for (key, total) in totals[userID] ?? [:] where keys.contains(key) { records.totals[key] = total }
        case .goalEvents(let time):
            records.goalEvents = events.filter { $0.happenedAt >= time }.map {
                .init(goal: $0.goal, value: $0.value, happenedAt: $0.happenedAt, senderID: $0.senderID)
            }
        case .goalEvent(let senderID):
            if events.contains(where: { $0.senderID == senderID }) { records.senderIDs.insert(senderID) }
        case .removals:
            records.removals = removedUsers.filter { $0.userHash == ErasureRules.hash(userID) }
        case .periods(let experimentID): records.periods = periods[experimentID] ?? []
        case .statuses(let experimentID): records.statuses = statuses[experimentID] ?? []
        case .newestDatafile: records.newestDatafile = newestDatafile
        case .series(let experimentIDs): records.series = experimentIDs.flatMap(trackedSeries)
        }
    }

    private mutating func perform(_ write: UserRecords.Write, of userID: Identifier, at now: Instant) {
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
        case .putSeries(let put):
            setSeries(put)
            newestSeries += 1
        case .putAttributes(let record, _): attributes[userID] = record.isEmpty ? nil : record
        case .takeOver(let other): takeOver(other, userID)
        case .eraseOtherRecords: eraseOtherRecords(of: userID)
        case .eraseStickyDocuments: stickyDocuments = stickyDocuments.filter { $0.key.attributeValue != userID }
        case .noteRemoval(let account):
            let mark = account == nil ? ErasureRules.hash(userID) : ErasureRules.mergeHash(userID)
            removals.append(UserRemoval(mark: mark, time: Int64(removals.count) + 1))
            noteRemoval(of: userID, into: account, at: now)
        case .recordAudit(let note, let author): record(note, by: author, at: now)
        }
    }

    private mutating func noteRemoval(of userID: Identifier, into account: Identifier?, at now: Instant) {
        let hash = ErasureRules.hash(userID)
        for index in removedUsers.indices where removedUsers[index].account == userID {
            removedUsers[index].account = account
        }
        if let last = removedUsers.last(where: { $0.userHash == hash }), last.account == account {
            removedUsers.removeAll { $0 == last }
        }
        removedUsers.removeAll { $0.userHash == hash && $0.removedAt == now }
        removedUsers.append(RemovedUser(userHash: hash, removedAt: now, account: account))
        guard account == nil else { return }
        for index in auditEntries.indices { auditEntries[index].anonymizeMerge(of: userID) }
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

    private func trackedSeries(of experimentID: Identifier) -> [TrackedSeries] {
        series.filter { $0.experimentID == experimentID && $0.state != .dropped }
    }

    mutating func delete(_ sums: SeriesSums) {
        goals = goals.filter { key, _ in
            key.experimentID != sums.experimentID
                || !sums.names.contains(key.goal) && !sums.ranges.contains { $0.from <= key.goal && key.goal < $0.to }
        }
    }

    mutating func setSeries(_ put: TrackedSeries) {
        series.removeAll { $0.number == put.number }
        series.append(put)
        series.sort { $0.number < $1.number }
    }

    private mutating func add(_ changes: TallyChanges) {
        for (key, change) in changes.users { users[key, default: UserCounts()] += change }
        for (key, change) in changes.goals { goals[key] = goals[key].map { $0 + change } ?? change }
    }

    func tallies(of experimentID: Identifier) -> TallySnapshot {
        var tallies = TallySnapshot()
        for period in periods[experimentID] ?? [] { tallies.add(period) }
        for (key, counts) in users where key.experimentID == experimentID { tallies.add(counts, key.cohort) }
        for (key, tally) in goals where key.experimentID == experimentID {
            tallies.add(tally, key.variationID, day: key.day, goal: key.goal)
        }
        return tallies
    }

    // MARK: Audit

    mutating func record(_ note: AuditNote, by author: Author, at now: Instant) {
        var entry = AuditEntry(note, by: author, at: now)
        entry.id = Int64(auditEntries.count) + 1
        auditEntries.append(entry)
        metrics.auditEntries += 1
        hasWritten = true
    }

    // MARK: Queries

    private func participants(_ scan: ParticipantScan) -> ParticipantPage {
        let found = exposures.filter {
            $0.exposure.experimentID == scan.experimentID && $0.exposure.userID > scan.after ?? ""
                && (scan.enrolledOn?.contains($0.exposure.happenedAt.day) ?? true)
        }
        .sorted { $0.exposure.userID < $1.exposure.userID }.prefix(scan.limit)
        return ParticipantPage(
            found.map { stored in
                let userID = stored.exposure.userID
                return Participant(
                    stored,
                    totals: scan.names.map { totals[userID]?[.init(experimentID: scan.experimentID, goal: $0)] },
                    attributes: scan.withAttributes ? attributes[userID]?.bytes : nil)
            }, limit: scan.limit)
    }

    /// - Returns: what ``StoreQuery`` with this subject returns.
    func find(_ subject: QuerySubject, at now: Instant) -> any Sendable {
        switch subject {
        case .profiles(let after, let limit): return page(after: after, limit: limit, at: now)
        case .knownUsers(let prefix, let after, let limit):
            let userIDs = Set(profiles.keys).union(attributes.keys).sorted().filter { userID in
                userID.string.utf8.starts(with: prefix.utf8) && userID > after ?? ""
            }
            return userIDs.prefix(limit).compactMap { userID -> KnownUser? in
                let profile = profiles[userID]?.visible(at: now)
                guard profile != nil || attributes[userID] != nil else { return nil }
                return KnownUser(userID: userID, assignments: profile?.count ?? 0)
            }
        case .userRecords(let after, let limit):
            let userIDs = Set(profiles.keys).union(attributes.keys).sorted().filter { $0 > after ?? "" }
            var lines = UserRecordLines()
            for userID in userIDs.prefix(limit) {
                Array(userID.string.utf8).withUnsafeBytes { lines.begin($0) }
                profiles[userID]?.bytes.withUnsafeBytes { lines.add(profile: $0) }
                attributes[userID]?.bytes.withUnsafeBytes { lines.add(attributes: $0) }
            }
            return lines.page(isLast: userIDs.count < limit)
        case .latestExposures(let limit): return Array(exposures.sorted { $0.number > $1.number }.prefix(limit))
        case .records(let userID): return records(of: userID)
        case .stickyDocuments(let keys): return keys.map { stickyDocuments[$0] }
        case .users(let matcher, let scope): return page(matcher, scope)
        case .exposures(let number, let limit): return Array(exposures.filter { $0.number > number }.prefix(limit))
        case .goalEvents(let number, let limit): return Array(goalEvents.filter { $0.number > number }.prefix(limit))
        case .exposuresOfUser(let userID, let number, let limit):
            let found = exposures.filter { $0.exposure.userID == userID && $0.number < number }
            return Array(found.sorted { $0.number > $1.number }.prefix(limit))
        case .goalEventsOfUser(let userID, let number, let limit):
            let found = goalEvents.filter { $0.event.userID == userID && $0.number < number }
            return Array(found.sorted { $0.number > $1.number }.prefix(limit))
        case .tally(let experimentID, let goal):
            return ExperimentTally(
                periods: periods[experimentID] ?? [],
                users: users.filter { $0.key.experimentID == experimentID }.map { ($0.key.cohort, $0.value) },
                goals: goals.filter { $0.key.experimentID == experimentID && $0.key.goal == goal }.map {
                    ($0.key.variationID, $0.key.day, $0.value)
                })
        case .enrolledUsers:
            return users.reduce(into: [Identifier: EnrolledUsers]()) { sums, row in
                guard row.value.counted > 0 else { return }
                let day = row.key.cohort.day
                var sum = sums[row.key.experimentID] ?? EnrolledUsers(count: 0, firstDay: day)
                sum.count += row.value.counted
                sum.firstDay = min(sum.firstDay, day)
                sums[row.key.experimentID] = sum
            }
        case .breakdown(let experimentID, let number, let goal, let time):
            var tally = BreakdownTally(number, goal)
            if let time {
                for row in frozenResults where row.experimentID == experimentID && row.frozenAt == time {
                    for element in (try? row.tallies()) ?? [] {
                        tally.add(element.tally, element.variationID, day: element.day, name: row.goal)
                    }
                }
            } else {
                for (key, sums) in goals where key.experimentID == experimentID {
                    tally.add(sums, key.variationID, day: key.day, name: key.goal)
                }
            }
            return tally
        case .goals(let experimentID, let limit):
            let found = Set(goals.keys.filter { $0.experimentID == experimentID && $0.goal > "\u{2}" }.map(\.goal))
            return Array(found.sorted().prefix(limit))
        case .frozenResults(let experimentID, let goal, let time):
            let rows = frozenResults.filter {
                $0.experimentID == experimentID && $0.frozenAt == time && ["", goal].contains($0.goal)
            }
            return try? FrozenResults(rows)
        case .participants(let scan): return participants(scan)
        case .participantEvents(let series, let scan, let last):
            var found = ParticipantEvents()
            for exposure in exposures.lazy.map(\.exposure)
            where exposure.experimentID == scan.experimentID && exposure.userID > scan.after ?? ""
                && exposure.userID <= last
            {
                let times = exposure.happenedAt..<exposure.happenedAt + series.end
                found.values[exposure.userID] = goalEvents.lazy.map(\.event).filter {
                    $0.userID == exposure.userID && series.goals.contains($0.goal) && times.contains($0.happenedAt)
                }.map {
                    UserRecords.GoalValue(
                        goal: $0.goal, value: $0.value, happenedAt: $0.happenedAt, senderID: $0.senderID)
                }
            }
            return found
        case .openSeries: return series.contains { $0.state != .filled }
        case .series(let experimentID): return trackedSeries(of: experimentID)
        case .projects(let changes, let version): return projectState(ifChangedSince: changes, datafilesAfter: version)
        case .removals(let time): return removals.filter { $0.time > time }
        case .removedUsers(let userIDs):
            let hashes = Set(userIDs.map(ErasureRules.hash))
            return removedUsers.filter { hashes.contains($0.userHash) }
        case .datafileHistory(let sdkKey, let limit):
            return datafiles.reversed().filter { $0.sdkKey == sdkKey }.prefix(limit).map { datafile in
                var datafile = datafile
                datafile.body = .whole([])
                return datafile
            }
        case .activeDatafile(let sdkKey, let time):
            return datafiles.filter { $0.sdkKey == sdkKey }.suffix(max(1, datafileHistory)).last { $0.storedAt <= time }
        case .datafile(let sdkKey, let version):
            return datafiles.first { $0.sdkKey == sdkKey && $0.version == version }
        case .lastDatafile(let sdkKey, let author):
            return datafiles.last { $0.sdkKey == sdkKey && $0.author == author }
        case .definitionVersions(let sdkKey, let keys): return definitionVersions(of: sdkKey, keys)
        case .auditEntries(let query):
            return Array(auditEntries.reversed().filter { $0.matches(query) }.prefix(query.limit))
        case .lastUses(let sdkKey):
            return lastUses.filter { $0.key.sdkKey == sdkKey }.map { LastUse($0.key, day: $0.value) }
        case .proposals(let sdkKey): return proposals.reversed().filter { $0.sdkKey == sdkKey }.map(\.withoutBody)
        case .proposal(let id): return proposals.first { $0.id == id }
        case .findings: return findings
        case .webhooks: return webhooks.values.sorted { $0.key < $1.key }
        case .auditTail(let after, let limit): return Array(auditEntries.filter { $0.id > after }.prefix(limit))
        case .looks(let sdkKey): return looks.filter { $0.sdkKey == sdkKey }
        case .feed(let number, let limit):
            let rows = Array(feed.filter { $0.number >= number }.prefix(limit))
            let end = rows.count == limit ? rows.last?.number : nil
            return FeedPage(epoch: epoch, start: 1, end: end ?? Int64(feed.count), rows: rows)
        }
    }

    private func page(after: Identifier?, limit: Int, at now: Instant) -> ProfilePage {
        let userIDs = profiles.keys.filter { userID in after.map { $0 < userID } ?? true }.sorted().prefix(limit)
        let visible = userIDs.compactMap { userID in
            profiles[userID]?.visible(at: now).map { (userID: userID, profile: $0) }
        }
        return ProfilePage(profiles: visible, end: userIDs.count < limit ? nil : userIDs.last)
    }

    private func projectState(ifChangedSince changes: Int64, datafilesAfter version: Int64) -> ProjectState? {
        guard projectChanges != changes else { return nil }
        var state = ProjectState(
            changes: projectChanges, projects: projects, newestDatafile: newestDatafile,
            datafiles: datafiles.filter { $0.version > version && activeDatafile($0.sdkKey)?.version == $0.version },
            forcedVariations: forcedVariations,
            schema: AttributeSchema(attributes: definitions, segments: Array(segments.values)))
        (state.generation, state.formerEpochs) = (StoreGeneration(storeID: 1, epoch: epoch), formerEpochs)
        return state
    }

    private func page(_ matcher: SegmentMatcher, _ scope: SegmentScan) -> SegmentPage {
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
