public import Bucketing
public import Storage

extension AttributeStore {
    /// Applies a change and waits until it is durable.
    ///
    /// - Returns: the numbers of the attributes that changed; `nil` if the schema has.
    @discardableResult
    public func update(_ updates: [UInt32: AttributeUpdate], of userID: Identifier) async throws -> [UInt32]? {
        try await apply(AttributeChange(userID: userID, operation: .update(updates)))
    }

    /// Applies a change and waits until it is durable.
    @discardableResult
    public func apply(_ change: AttributeChange) async throws -> [UInt32]? {
        let result = try await withCheckedContinuation { continuation in
            submit(change) { continuation.resume(returning: $0) }
        }.get()
        return if case .applied(let changed) = result { changed } else { nil }
    }

    @discardableResult
    public func define(_ definition: AttributeDefinition) async throws -> AttributeDefinitionResult {
        try await withCheckedContinuation { continuation in
            putAttribute(definition, by: .processUser) { continuation.resume(returning: $0) }
        }.get()
    }

    @discardableResult
    public func removeDefinition(_ name: Identifier) async throws -> Bool {
        try await withCheckedContinuation { continuation in
            removeAttribute(name, by: .processUser) { continuation.resume(returning: $0) }
        }.get()
    }

    /// One look through the users.
    public func page(_ matcher: SegmentMatcher, _ scope: SegmentScan) async throws -> SegmentPage {
        try await withCheckedContinuation { continuation in
            scan(matcher, scope) { continuation.resume(returning: $0) }
        }.get()
    }
}

extension ProfileReader where Self: AttributeReader {
    /// Looks up one user's attributes in a batch of its own. Only for stores that answer before the call returns.
    public func attributes(of userID: Identifier) throws -> AttributeRecord? {
        beginBatch()
        defer { endBatch() }
        var answer: Result<AttributeRecord?, StorageError>?
        attributes(of: userID) { answer = $0 }
        guard let answer else { throw NotAnswered() }
        return try answer.get()
    }
}
