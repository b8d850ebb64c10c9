import Bucketing
import Dispatch
import Storage

/// Sends the lookups of a batch as one query for profiles and one for attributes. Lookups that arrive before the result
/// go into the next queries.
extension PostgreSQLSession {
    /// The maximum number of lookups that wait.
    private static let lookupLimit = 65_536
    /// The maximum number of lookups in one query.
    private static let lookupsPerQuery = 4_096

    /// Why a lookup is refused; `nil` if it may wait.
    private var lookupRefusal: StorageError? {
        if isClosed || store.isClosed { return .closed }
        return profileLookups.count + attributeLookups.count < Self.lookupLimit ? nil : .overloaded
    }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        if let refusal = lookupRefusal { return completion(.failure(refusal)) }
        guard Self.mayBeStored(userID) else { return completion(.success(nil)) }
        noteLookup()
        profileLookups.append((userID, completion))
        if !isInBatch { sendLookups() }
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        if let refusal = lookupRefusal { return completion(.failure(refusal)) }
        guard Self.mayBeStored(userID) else { return completion(.success(nil)) }
        noteLookup()
        attributeLookups.append((userID, completion))
        if !isInBatch { sendLookups() }
    }

    /// Whether the database can contain a user. A text with NUL cannot be stored, and as a parameter it would make the
    /// whole query fail, with the lookups of other users.
    private static func mayBeStored(_ userID: Identifier) -> Bool { !userID.string.utf8.contains(0) }

    /// Notes that a lookup will wait.
    private func noteLookup() {
        if profileLookups.isEmpty, attributeLookups.isEmpty { lookupsSince = now }
        untilDone = self
    }

    /// Sends the lookups that wait, unless others are in progress.
    func sendLookups() {
        guard !isLookingUp, !profileLookups.isEmpty || !attributeLookups.isEmpty else { return }
        isLookingUp = true
        let profiles = Array(profileLookups.prefix(Self.lookupsPerQuery))
        let attributes = Array(attributeLookups.prefix(Self.lookupsPerQuery))
        profileLookups.removeFirst(profiles.count)
        attributeLookups.removeFirst(attributes.count)
        let since = lookupsSince
        runQuery(for: profiles, attributes, by: deadline(since: since)) { [self] error in
            isLookingUp = false
            coalescer.begin()
            store.countLookups(profiles.count + attributes.count, nanoseconds: now &- since)
            guard let error else { return }
            if store.isDistributed, error.mayConcernOneNode, profiles.count + attributes.count > 1 {
                sendByNode(profiles, attributes, by: deadline(since: since))
            } else {
                failLookups(profiles, attributes, error)
            }
        }
    }

    /// Users to look up, each with its completion.
    private typealias Lookups<Record> = [(userID: Identifier, completion: Completion<Record?>)]

    /// Runs the queries of lookups, and calls the completions of the lookups if that succeeds.
    ///
    /// - Parameter done: called once. If the queries succeed, it is called with `nil`, and then the completions are
    ///   called. If the queries fail, it is called with their error, and the completions are not called.
    private func runQuery(
        for profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>, by deadline: UInt64,
        done: @escaping (PostgreSQLError?) -> Void
    ) {
        var queries: [SQLQuery] = []
        if !profiles.isEmpty { queries.append(UserRows.profiles(.texts(profiles.map(\.userID.string)))) }
        if !attributes.isEmpty { queries.append(UserRows.attributes(.texts(attributes.map(\.userID.string)))) }
        attempt(queries, by: deadline) { [self] result in
            switch result {
            case .success(let rows):
                store.readsWork()
                done(nil)
                let now = store.clock.now()
                if !profiles.isEmpty {
                    Self.complete(profiles, rows[0]) { bytes, userID throws(StorageError) in
                        try ProfileRecord(stored: bytes, of: userID).visible(at: now)
                    }
                }
                if !attributes.isEmpty {
                    Self.complete(attributes, rows[rows.count - 1]) { bytes, userID throws(StorageError) in
                        try AttributeRecord(stored: bytes, of: userID)
                    }
                }
            case .failure(let error): done(error)
            }
        }
    }

    /// Completes lookups with an error, and counts them.
    ///
    /// - Parameter isOneNode: whether the cause concerns only one node of a distributed database.
    private func failLookups(
        _ profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>, _ error: PostgreSQLError,
        isOneNode: Bool = false
    ) {
        let failure = error.asStorageError
        store.lookupsFailed(profiles.count + attributes.count, isOneNode || error.mayConcernOneChange ? nil : failure)
        for lookup in profiles { lookup.completion(.failure(failure)) }
        for lookup in attributes { lookup.completion(.failure(failure)) }
    }

    /// Sends lookups again after they have failed together. Each node of a distributed database gets queries of its
    /// own, so that an unreachable node fails only its own users.
    private func sendByNode(
        _ profiles: Lookups<ProfileRecord>, _ attributes: Lookups<AttributeRecord>, by deadline: UInt64
    ) {
        let users = Set(profiles.map(\.userID)).union(attributes.map(\.userID))
        attempt([UserRows.nodes(.texts(users.map(\.string)))], by: deadline) { [self] result in
            switch result {
            case .success(let rows):
                let nodes = UserRows.nodes(rows[0])
                for node in Set(nodes.values) {
                    let profilesOfNode = profiles.filter { nodes[$0.userID] == node }
                    let attributesOfNode = attributes.filter { nodes[$0.userID] == node }
                    runQuery(for: profilesOfNode, attributesOfNode, by: deadline) { [self] error in
                        guard let error else { return }
                        failLookups(profilesOfNode, attributesOfNode, error, isOneNode: error.mayConcernOneNode)
                    }
                }
            case .failure(let error): failLookups(profiles, attributes, error)
            }
        }
    }

    /// Completes lookups with the rows of their query. The rows are in any order; a user without a row has no record.
    private static func complete<Record>(
        _ lookups: Lookups<Record>, _ rows: Rows,
        _ decode: ([UInt8], Identifier) throws(StorageError) -> Record?
    ) {
        var indices: [Identifier: Int] = [:]
        indices.reserveCapacity(rows.count)
        for (index, row) in rows.enumerated() { indices[row.identifier(0)] = index }
        for lookup in lookups {
            guard let index = indices[lookup.userID], let bytes = rows[index].optionalBytes(1) else {
                lookup.completion(.success(nil))
                continue
            }
            lookup.completion(Result { () throws(StorageError) in try decode(bytes, lookup.userID) })
        }
    }
}
