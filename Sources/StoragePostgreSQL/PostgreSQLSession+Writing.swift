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
            { change, outcome in step(change, by: author, outcome) }, completion)
    }

    /// Returns the step that applies a change of a profile, and stores its result in `outcome`. The step refuses an
    /// assignment that was decided with a datafile that is no longer the newest.
    private func step(
        _ change: ProfileChange, by author: Author?, _ outcome: Outcome<ProfileChangeResult>
    ) -> ChangeStep {
        let rules = store.settings.rules
        return ChangeStep(change.userID) { transaction in
            var anonymous: ProfileRecord?
            if case .assign(_, let version, let anonymousID) = change.operation {
                do throws(StorageError) {
                    guard let basis = try Self.basis(of: change.userID, version, anonymousID, in: transaction) else {
                        return false
                    }
                    anonymous = basis.anonymous
                } catch {
                    outcome.result = .failure(error)
                    transaction.refused()
                    return true
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

    /// The data besides the user's profile that an assignment depends on.
    private struct AssignmentBasis {
        /// The profile of the anonymous user who has logged in as the user; `nil` if there is none.
        var anonymous: ProfileRecord?
    }

    /// Returns the data that an assignment depends on, and makes the commit fail if this data changes before.
    ///
    /// - Parameters:
    ///   - version: the version of the datafile with which the assignment was decided.
    ///   - anonymousID: the anonymous user whose assignments are taken over; `nil` for none.
    /// - Returns: `nil` if something has to be read first.
    /// - Throws: `StorageError.staleDatafile` if the datafile is not the newest; `StorageError.damaged` if the
    ///   anonymous user's profile is damaged.
    private static func basis(
        of userID: Identifier, _ version: Int64, _ anonymousID: Identifier?, in transaction: OptimisticTransaction
    ) throws(StorageError) -> AssignmentBasis? {
        // Asks for all data before it returns, so that all of it is read at once.
        let newest = transaction.newestDatafile()
        let anonymousUser = anonymousID.flatMap { transaction.user($0) }
        let user = transaction.user(userID)
        let lacksAnonymousUser = anonymousID != nil && anonymousUser == nil
        guard let newest, user != nil, !lacksAnonymousUser else { return nil }
        guard newest == version else { throw .staleDatafile }
        transaction.expectNewestDatafile(version)
        guard let anonymousUser else { return AssignmentBasis() }
        let profile = try anonymousUser.profile.get()
        transaction.keep(anonymousUser)
        return AssignmentBasis(anonymous: profile)
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

    /// Returns the step that stores an event.
    ///
    /// If another server has erased the user after the event was received, the event is dropped. The outcome is the
    /// same as if the event had been stored first and then erased with the user, so that the sender does not send it
    /// again.
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
            needsOwnTransaction: changes.contains { $0.userIDs.count > 1 }, completion)
    }

    /// Submits changes as the steps of one ``PendingChange``.
    ///
    /// - Parameters:
    ///   - step: returns the step that applies a change and sets its outcome.
    ///   - needsOwnTransaction: see ``PendingChange/needsOwnTransaction``.
    private func submit<Change, Value>(
        _ changes: [Change], _ kind: PendingChange.Kind, bytes: (Change) -> Int,
        _ step: (Change, Outcome<Value>) -> ChangeStep, needsOwnTransaction: Bool = false,
        _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        guard !changes.isEmpty else { return completion([]) }
        let outcomes = changes.map { _ in Outcome<Value>() }
        let pending = PendingChange(
            kind, bytes: changes.reduce(0) { $0 + bytes($1) }, zip(changes, outcomes).map { step($0, $1) }
        ) { failure in
            completion(outcomes.map { $0.result(unless: failure) })
        }
        pending.needsOwnTransaction = needsOwnTransaction
        submit(pending)
    }

    // MARK: Changes of data that all users share

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
                // Read under the lock, so that changes for which the lock has waited have earlier times.
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
