public import Bucketing
public import Storage

/// Lookups of sessions that complete before the call returns, on the calling thread.
extension StoreSession {
    /// Looks up one user in a batch of its own.
    public func profile(of userID: Identifier) throws -> ProfileRecord? {
        beginBatch()
        defer { endBatch() }
        return try profileInBatch(of: userID)
    }

    /// Looks up one user in the batch that has begun.
    public func profileInBatch(of userID: Identifier) throws -> ProfileRecord? {
        var result: Result<ProfileRecord?, StorageError>?
        profile(of: userID) { result = $0 }
        return try completed(result)
    }

    /// Looks up one user's attributes in a batch of its own.
    public func attributes(of userID: Identifier) throws -> AttributeRecord? {
        beginBatch()
        defer { endBatch() }
        var result: Result<AttributeRecord?, StorageError>?
        attributes(of: userID) { result = $0 }
        return try completed(result)
    }

    /// The variations of a user by experiment; `nil` if there is no profile.
    public func variations(of userID: Identifier) throws -> [Identifier: Identifier]? {
        try profile(of: userID).map(\.variations)
    }

    /// So many profiles after a user, in a batch of their own, of as many pages as it takes.
    public func page(after: Identifier?, limit: Int) throws -> [(userID: Identifier, profile: ProfileRecord)] {
        beginBatch()
        defer { endBatch() }
        var found: [(userID: Identifier, profile: ProfileRecord)] = []
        var end = after
        repeat {
            var result: Result<ProfilePage, StorageError>?
            read(.profiles(after: end, limit: limit - found.count)) { result = $0 }
            let page = try completed(result)
            found += page.profiles
            end = page.end
        } while end != nil && found.count < limit
        return found
    }

    private func completed<Value>(_ result: Result<Value, StorageError>?) throws -> Value {
        guard let result else { throw NotCompleted() }
        return try result.get()
    }
}

/// A session did not call its completion before the call returned.
struct NotCompleted: Error {}
