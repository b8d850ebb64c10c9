import Bucketing
import JSON
import Storage

extension PostgreSQLSession {
    // MARK: Profiles

    func profiles(after: Identifier?, limit: Int, _ completion: @escaping Completion<ProfilePage>) {
        let clock = store.clock
        // User ids are not empty, so that all follow the empty text.
        let query = UserRows.page(.text(after?.string ?? ""), .integer(limit))
        guard !store.isClosed else { return completion(.failure(.closed)) }
        read([query]) { result in
            completion(
                result.flatMap { rows in
                    Result { () throws(StorageError) in try Self.page(rows[0], limit: limit, at: clock.now()) }
                })
        }
    }

    private static func page(_ rows: Rows, limit: Int, at now: Timestamp) throws(StorageError) -> ProfilePage {
        var page = ProfilePage(profiles: [], end: nil)
        for row in rows.indices {
            let userID = rows.identifier(row, 0)
            if let profile = try UserRows.profile(rows, row, 1).get()?.visible(at: now) {
                page.profiles.append((userID, profile))
            }
            if row == limit - 1 { page.end = userID }
        }
        return page
    }

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        let outcome = Outcome<ProfileChangeResult>()
        let kind: PendingChange.Kind = change.concernsProfileOnly ? .profile : .records
        submit(
            PendingChange(kind, bytes: change.waitingBytes, [step(change, by: author, outcome)]) { failure in
                completion(outcome.result(unless: failure))
            })
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        guard !changes.isEmpty else { return completion([]) }
        let outcomes = changes.map { _ in Outcome<ProfileChangeResult>() }
        let kind: PendingChange.Kind = changes.allSatisfy(\.concernsProfileOnly) ? .profile : .records
        let bytes = changes.reduce(0) { $0 + $1.waitingBytes }
        submit(
            PendingChange(kind, bytes: bytes, zip(changes, outcomes).map { step($0, by: author, $1) }) { failure in
                completion(outcomes.map { outcome in outcome.result(unless: failure) })
            })
    }

    private func step(
        _ change: ProfileChange, by author: Author?, _ outcome: Outcome<ProfileChangeResult>
    ) -> ChangeStep {
        let rules = StoreRules(profiles: store.settings.rules)
        return ChangeStep(change.userID) { round in
            var anonymous: ProfileRecord?
            if case .assign(_, let version, let anonymousID) = change.operation {
                // All are read at once.
                let newest = round.newestDatafile()
                let other = anonymousID.flatMap { round.user($0) }
                guard let newest, anonymousID == nil || other != nil, round.user(change.userID) != nil else {
                    _ = round.user(change.userID)
                    return false
                }
                guard newest == version else {
                    outcome.result = .failure(.staleDatafile)
                    round.refused()
                    return true
                }
                round.expectNewestDatafile(version)
                if let other {
                    do throws(StorageError) {
                        anonymous = try other.profile.get()
                    } catch {
                        outcome.result = .failure(error)
                        round.refused()
                        return true
                    }
                    round.keep(other)
                }
            }
            guard
                let result = change.concernsProfileOnly
                    ? Self.apply(change, anonymous: anonymous, rules.profiles, in: round)
                    : round.apply(
                        to: change.userID,
                        { records, tallies throws(StorageError) in
                            try rules.apply(change, by: author, to: &records, at: round.now, &tallies)
                        })
            else { return false }
            if case .failure = result { round.refused() }
            if change.operation.isErasure, case .success = result, let user = round.user(change.userID) {
                round.removed(user, ErasureRules.hash(user.userID))
            }
            outcome.result = result
            return true
        }
    }

    private static func apply(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, in round: OptimisticTransaction
    ) -> Result<ProfileChangeResult, StorageError>? {
        guard let user = round.user(change.userID) else { return nil }
        return Result { () throws(StorageError) in
            let outcome = try rules.apply(
                change, to: try user.profile.get(), anonymous: anonymous, at: round.now)
            switch outcome.effect {
            case .none: break
            case .put(let record): user.set(record)
            case .delete: user.set(ProfileRecord?.none)
            }
            return outcome.result
        }
    }

    func merge(_ merge: ProfileMerge, by author: Author, _ completion: @escaping Completion<ProfileMergeResult>) {
        let outcome = Outcome<ProfileMergeResult>()
        let rules = MergeRules(profiles: store.settings.rules)
        let step = ChangeStep(merge.userID) { round in
            let result = round.apply(
                to: merge.userID, merge.anonymousID,
                { account, anonymous, tallies throws(StorageError) in
                    try rules.apply(merge, by: author, to: &account, &anonymous, at: round.now, &tallies)
                })
            guard let result else { return false }
            if case .success(let merged) = result, merged.changed, let user = round.user(merge.anonymousID) {
                round.removed(user, ErasureRules.mergeHash(user.userID))
            }
            if case .failure = result { round.refused() }
            outcome.result = result
            return true
        }
        let change = PendingChange(.records, [step]) { failure in
            completion(outcome.result(unless: failure))
        }
        // It moves rows in the database, which rules of other changes in the same transaction would not see.
        change.isAlone = true
        submit(change)
    }

    func records(of userID: Identifier, _ completion: @escaping Completion<UserRecords>) {
        guard !store.isClosed else { return completion(.failure(.closed)) }
        let user = Parameter.texts([userID.string])
        // One snapshot for all tables.
        read([
            Statement.beginSnapshot(), UserRows.wholeRows(user), ForcedVariationRows.ofUsers(user),
            ExposureRows.ofUsers(user), GoalEventRows.counts(user), AuditRows.counts(user),
            StickyDocumentRows.ofUsers(user), Statement.commit(),
        ]) { result in
            completion(
                result.map { rows in
                    var records = UserRecords(userID: userID)
                    if rows[1].count > 0 {
                        records.profile = UserRows.profile(rows[1], 0, 2)
                        records.attributes = .init(rows[1].optionalBytes(0, 3), of: userID)
                    }
                    records.forcedVariations = rows[2].indices.map { ForcedVariationRows.decode(rows[2], $0) }
                    records.exposures = rows[3].indices.map { ExposureRows.decode(rows[3], $0) }
                    if rows[4].count > 0 { records.otherRecords.goalEvents = UserRows.several(rows[4], 0) }
                    if rows[5].count > 0 { records.otherRecords.auditEntries = UserRows.several(rows[5], 0) }
                    records.stickyDocuments = rows[6].indices.map { row in
                        .init(attributeName: rows[6].text(row, 1), content: rows[6].text(row, 2))
                    }
                    return records
                })
        }
    }

    // MARK: Sticky documents

    func stickyDocuments(_ keys: [StickyDocumentKey], _ completion: @escaping Completion<[StickyDocument?]>) {
        guard !store.isClosed else { return completion(.failure(.closed)) }
        read([StickyDocumentRows.find(keys)]) { result in
            completion(
                result.flatMap { rows in
                    Result { () throws(StorageError) in
                        var documents: [StickyDocument?] = []
                        let found = StickyDocumentRows.contents(rows[0])
                        for key in keys {
                            guard let content = found[key] else {
                                documents.append(nil)
                                continue
                            }
                            documents.append(try StickyDocument(key: key, content: content))
                        }
                        return documents
                    }
                })
        }
    }

    func submit(_ change: StickyDocumentChange, _ completion: @escaping Completion<StickyDocument>) {
        let outcome = Outcome<StickyDocument>()
        let limit = store.settings.rules.assignmentLimit
        submit(
            ProjectChange(bytes: change.waitingBytes, lock: StickyDocumentRows.lock(change.key), reads: []) { rows in
                outcome.result = Result { () throws(StorageError) in
                    let content = rows[1].text(0, 0)
                    let isNew = rows[0].count > 0
                    let stored = isNew ? nil : try StickyDocument(key: change.key, content: content)
                    return try StickyDocumentRules.merge(change, into: stored, limit: limit)
                }
                guard case .success(let document) = outcome.result,
                    rows[0].count > 0
                        ? !document.assignments.isEmpty
                        : document.content.encoded()
                            != Array(rows[1].text(0, 0).utf8)
                else { return ([], 0) }
                return ([StickyDocumentRows.update(document)], 0)
            } complete: { failure in
                completion(outcome.result(unless: failure))
            })
    }

    func removeStickyDocument(_ key: StickyDocumentKey, by author: Author, _ completion: @escaping Completion<Bool>) {
        let outcome = Outcome<Bool>()
        let clock = store.clock
        submit(
            ProjectChange(lock: [StickyDocumentRows.findLocked(key)], reads: []) { rows in
                outcome.result = .success(rows[0].count > 0)
                guard rows[0].count > 0 else { return ([], 0) }
                let note = AuditNote(removing: key, try? StickyDocument(key: key, content: rows[0].text(0, 0)))
                let entry = AuditEntry(note, by: author, at: clock.now())
                return ([StickyDocumentRows.delete(key), AuditRows.insert([entry])], 1)
            } complete: { failure in
                completion(outcome.result(unless: failure))
            })
    }

    // MARK: Attributes

    func submit(_ change: AttributeChange, _ completion: @escaping Completion<AttributeChangeResult>) {
        let outcome = Outcome<AttributeChangeResult>()
        submit(
            PendingChange(.attributes, bytes: change.waitingBytes, [Self.step(change, outcome)]) { failure in
                completion(outcome.result(unless: failure))
            })
    }

    func submit(
        _ changes: [AttributeChange], _ completion: @escaping ([Result<AttributeChangeResult, StorageError>]) -> Void
    ) {
        guard !changes.isEmpty else { return completion([]) }
        let outcomes = changes.map { _ in Outcome<AttributeChangeResult>() }
        let bytes = changes.reduce(0) { $0 + $1.waitingBytes }
        submit(
            PendingChange(.attributes, bytes: bytes, zip(changes, outcomes).map { Self.step($0, $1) }) { failure in
                completion(outcomes.map { outcome in outcome.result(unless: failure) })
            })
    }

    private static func step(_ change: AttributeChange, _ outcome: Outcome<AttributeChangeResult>) -> ChangeStep {
        ChangeStep(change.userID) { round in
            let user = round.user(change.userID)
            guard let defined = round.definedAttributes(), let user else { return false }
            outcome.result = Result { () throws(StorageError) in
                let stored = try AttributeRules.stored(user.attributes, for: change)
                let applied = AttributeRules.apply(change, to: stored, isDefined: defined.contains)
                switch applied.effect {
                case .none: break
                case .put(let record): user.set(record)
                case .delete: user.set(AttributeRecord?.none)
                }
                return applied.result
            }
            if case .failure = outcome.result { round.refused() }
            return true
        }
    }

    /// The number of rows that a step of a scan reads.
    private static let scanRows = 512

    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, _ completion: @escaping Completion<SegmentPage>) {
        var page = SegmentPage()
        if case .users(let after) = scope { page.last = after }
        resume(matcher, scope, page, completion)
    }

    private func resume(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, _ former: SegmentPage,
        _ completion: @escaping Completion<SegmentPage>
    ) {
        let query = UserRows.attributePage(.text(former.last?.string ?? ""), .integer(Self.scanRows))
        scan(
            query,
            { [self] (result: Result<SegmentPage, StorageError>) in
                if case .success(let page) = result, page.last != nil, page.userIDs.isEmpty {
                    resume(matcher, scope, page, completion)
                } else {
                    completion(result)
                }
            }
        ) { rows in
            var page = former
            page.last = rows.count == Self.scanRows ? rows.identifier(rows.count - 1, 0) : nil
            page.examined += rows.count
            let isListing = if case .users = scope { true } else { false }
            for row in rows.indices where rows.withBytes(row, 1, matcher.matches) {
                page.matches += 1
                if isListing { page.userIDs.append(rows.identifier(row, 0)) }
            }
            return page
        }
    }

    // MARK: Events

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        guard !events.isEmpty else { return completion(.success([])) }
        let outcomes = events.map { _ in Outcome<EventOutcome>() }
        let bytes = events.reduce(0) { $0 + $1.waitingBytes }
        submit(
            PendingChange(.records, bytes: bytes, zip(events, outcomes).map { step($0, $1) }) { failure in
                completion(
                    Result { () throws(StorageError) in
                        if let failure { throw failure }
                        var found: [EventOutcome] = []
                        for outcome in outcomes { found.append(try outcome.result.get()) }
                        return found
                    })
            })
    }

    private func step(_ received: ReceivedEvent, _ outcome: Outcome<EventOutcome>) -> ChangeStep {
        let event = received.event
        let rules = store.settings.rules
        return ChangeStep(event.userID) { round in
            let wasErased = round.wasErased(event.userID, since: received.receivedAt)
            if wasErased == true {
                outcome.result = .success(.stored)
                return true
            }
            let result = round.apply(to: event.userID) { EventRules.apply(event, to: &$0, &$1, rules, at: round.now) }
            guard wasErased != nil, let result else { return false }
            outcome.result = result
            return true
        }
    }

    func exposures(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>) {
        scan(ExposureRows.page(.integer(number), .integer(limit)), completion) { rows in
            rows.indices.map { ExposureRows.decode(rows, $0) }
        }
    }

    func goalEvents(after number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>) {
        scan(GoalEventRows.page(.integer(number), .integer(limit)), completion) { rows in
            rows.indices.map { GoalEventRows.decode(rows, $0) }
        }
    }

    func exposures(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredExposure]>
    ) {
        let page = ExposureRows.pageOfUser(.text(userID.string), .integer(number), .integer(limit))
        scan(page, completion) { rows in rows.indices.map { ExposureRows.decode(rows, $0) } }
    }

    func goalEvents(
        of userID: Identifier, before number: Int64, limit: Int, _ completion: @escaping Completion<[StoredGoalEvent]>
    ) {
        let page = GoalEventRows.pageOfUser(.text(userID.string), .integer(number), .integer(limit))
        scan(page, completion) { rows in rows.indices.map { GoalEventRows.decode(rows, $0) } }
    }

    func tally(experimentID: Identifier, goal: Identifier, _ completion: @escaping Completion<ExperimentTally>) {
        guard !store.isClosed else { return completion(.failure(.closed)) }
        // One snapshot for both tables.
        read([
            Statement.beginSnapshot(), TallyRows.ofExperiment(.text(experimentID.string), .text(goal.string)),
            AllocationPeriodRows.ofExperiments(.texts([experimentID.string])), Statement.commit(),
        ]) { result in
            completion(result.map { TallyRows.tally($0[1], periods: $0[2]) })
        }
    }

    func goals(experimentID: Identifier, limit: Int, _ completion: @escaping Completion<[Identifier]>) {
        scan(TallyRows.goals(.text(experimentID.string), .integer(limit)), completion) { rows in
            rows.indices.map { rows.identifier($0, 0) }
        }
    }
}
