public import Bucketing
public import Storage

extension ProfileReader {
    /// Looks up one user in a batch of its own. Only for stores that answer before the call returns.
    public func profile(of userID: Identifier) throws -> ProfileRecord? {
        beginBatch()
        defer { endBatch() }
        return try profileInBatch(of: userID)
    }

    /// Looks up one user in the batch that has begun.
    public func profileInBatch(of userID: Identifier) throws -> ProfileRecord? {
        var answer: Result<ProfileRecord?, StorageError>?
        profile(of: userID) { answer = $0 }
        return try answered(answer)
    }

    /// The variations of a user by experiment; `nil` when there is no profile.
    public func variations(of userID: Identifier) throws -> [Identifier: Identifier]? {
        try profile(of: userID).map(\.variations)
    }

    /// So many profiles behind a user, in a batch of their own, of as many pages as it takes.
    public func page(after: Identifier?, limit: Int) throws -> [(userID: Identifier, profile: ProfileRecord)] {
        beginBatch()
        defer { endBatch() }
        var found: [(userID: Identifier, profile: ProfileRecord)] = []
        var end = after
        repeat {
            var answer: Result<ProfilePage, StorageError>?
            profiles(after: end, limit: limit - found.count) { answer = $0 }
            let page = try answered(answer)
            found += page.profiles
            end = page.end
        } while end != nil && found.count < limit
        return found
    }

    private func answered<Value>(_ answer: Result<Value, StorageError>?) throws -> Value {
        guard let answer else { throw NotAnswered() }
        return try answer.get()
    }
}

extension ProfileRecord {
    /// The variations by experiment.
    public var variations: [Identifier: Identifier] {
        Dictionary(uniqueKeysWithValues: entries.map { (experimentID(of: $0), variationID(of: $0)) })
    }
}

/// A reader did not call its completion before the call returned.
struct NotAnswered: Error {}
