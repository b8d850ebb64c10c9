import Bucketing
import Storage

/// Turns the changes of the store's interface into ``PendingChange``s, whose steps apply the rules of `Storage`, and
/// into ``ProjectChange``s.
extension PostgreSQLSession {
    // MARK: Profiles

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
        submit(
            changes, changes.allSatisfy(\.concernsProfileOnly) ? .profile : .records, bytes: \.waitingBytes,
            { step($0, by: author, $1) }, completion)
    }

    /// Returns the step that applies a change of a profile and stores its result in `outcome`. It fails without effect
    /// if an assignment was decided with a datafile that is no longer the newest.
    private func step(
        _ change: ProfileChange, by author: Author?, _ outcome: Outcome<ProfileChangeResult>
    ) -> ChangeStep {
        let rules = store.settings.rules
        return ChangeStep(change.userID) { transaction in
            var anonymous: ProfileRecord?
            if case .assign(_, let version, let anonymousID) = change.operation {
                // Asks for everything before it returns, so that all is read at once.
                let newest = transaction.newestDatafile()
                let other = anonymousID.flatMap { transaction.user($0) }
                guard let newest, anonymousID == nil || other != nil, transaction.user(change.userID) != nil else {
                    _ = transaction.user(change.userID)
                    return false
                }
                guard newest == version else {
                    outcome.result = .failure(.staleDatafile)
                    transaction.refused()
                    return true
                }
                transaction.expectNewestDatafile(version)
                if let other {
                    do throws(StorageError) {
                        anonymous = try other.profile.get()
                    } catch {
                        outcome.result = .failure(error)
                        transaction.refused()
                        return true
                    }
                    transaction.keep(other)
                }
            }
            guard
                let result = change.concernsProfileOnly
                    ? Self.apply(change, anonymous: anonymous, rules, in: transaction)
                    : transaction.apply(.profile(change, by: author))
            else { return false }
            outcome.result = result
            return true
        }
    }

    /// Applies a change that concerns only the profile.
    ///
    /// - Returns: `nil` if something has to be read first.
    private static func apply(
        _ change: ProfileChange, anonymous: ProfileRecord?, _ rules: ProfileRules, in transaction: OptimisticTransaction
    ) -> Result<ProfileChangeResult, StorageError>? {
        guard let user = transaction.user(change.userID) else { return nil }
        do throws(StorageError) {
            let stored = try user.profile.get()
            let outcome = try rules.apply(change, to: stored, anonymous: anonymous, at: transaction.now)
            switch outcome.effect {
            case .none: break
            case .put(let record): user.put(record, replacing: stored)
            case .delete: user.set(ProfileRecord?.none)
            }
            return .success(outcome.result)
        } catch {
            transaction.refused()
            return .failure(error)
        }
    }

    // MARK: Other changes of users

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        submit(events, .records, bytes: \.waitingBytes, Self.step) { results in
            completion(
                Result { () throws(StorageError) in
                    var outcomes: [EventOutcome] = []
                    for result in results { outcomes.append(try result.get()) }
                    return outcomes
                })
        }
    }

    /// Returns the step that stores an event, unless the user was erased after the event was received.
    private static func step(_ received: ReceivedEvent, _ outcome: Outcome<EventOutcome>) -> ChangeStep {
        ChangeStep(received.event.userID) { transaction in
            let wasErased = transaction.wasErased(received.event.userID, since: received.receivedAt)
            if wasErased == true {
                outcome.result = .success(.stored)
                return true
            }
            let result = transaction.apply(.event(received))
            guard wasErased != nil, let result else { return false }
            outcome.result = result
            return true
        }
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        submit(
            changes, changes.allSatisfy(\.concernsAttributesOnly) ? .attributes : .records, bytes: \.bytes,
            { change, outcome in
                ChangeStep(change.userIDs[0]) { transaction in
                    guard let result = transaction.apply(change) else { return false }
                    outcome.result = result
                    return true
                }
            },
            // A change of two users moves rows in the database, which the rules of other changes in the same
            // transaction would not see.
            isAlone: changes.contains { $0.userIDs.count > 1 }, completion)
    }

    /// Submits changes as the steps of one ``PendingChange``.
    private func submit<Change, Value>(
        _ changes: [Change], _ kind: PendingChange.Kind, bytes: (Change) -> Int,
        _ step: (Change, Outcome<Value>) -> ChangeStep, isAlone: Bool = false,
        _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        guard !changes.isEmpty else { return completion([]) }
        let outcomes = changes.map { _ in Outcome<Value>() }
        let pending = PendingChange(
            kind, bytes: changes.reduce(0) { $0 + bytes($1) }, zip(changes, outcomes).map { step($0, $1) }
        ) { failure in
            completion(outcomes.map { $0.result(unless: failure) })
        }
        pending.isAlone = isAlone
        submit(pending)
    }

    // MARK: What all users share

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        let outcome = Outcome<Value>()
        let settings = store.settings
        let clock = store.clock
        let (locks, reads) = SharedRecords.readings(change.parts)
        submit(
            ProjectChange(bytes: change.bytes, lock: locks.map(\.query), reads: reads.map(\.query)) { results in
                var records = SharedRecords()
                for (reading, rows) in zip(locks + reads, results) {
                    for row in rows { reading.take(row, &records) }
                }
                // Taken after the lock: changes that it waited for have earlier times.
                let now = clock.now()
                outcome.result = Result { () throws(StorageError) in
                    try change.rule(&records, RuleContext(settings.rules, at: now))
                }
                return (
                    records.queries(settings, at: now),
                    records.writes.count { if case .recordAudit = $0 { true } else { false } }
                )
            } complete: { failure in
                completion(outcome.result(unless: failure))
            })
    }
}
