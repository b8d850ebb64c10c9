/// Caches the results of large audiences and segments for one user, so that conditions that several experiments share
/// are evaluated once per request.
///
/// A result is cached with its reasons, so all decisions of the request must agree on whether reasons are requested.
package final class ConditionCache: @unchecked Sendable {
    // `@unchecked Sendable` is safe: a user with a cache is passed from one decision to the next on one thread, never
    // to two decisions at once.

    /// The conditions that an entry has the result of.
    package enum Subject: Hashable, Sendable {
        case audience(Identifier)
        case segment(Identifier)
    }

    private struct Entry {
        let result: Bool?
        /// The reasons that the evaluation added.
        let reasons: ArraySlice<String>
    }

    private var entries: [Subject: Entry] = [:]

    /// Returns the cached result and adds its reasons, or evaluates the conditions.
    func result(of subject: Subject, _ reasons: inout Reasons, _ evaluate: (inout Reasons) -> Bool?) -> Bool? {
        if let entry = entries[subject] {
            reasons.append(entry.reasons)
            return entry.result
        }
        let countBefore = reasons.texts.count
        let result = evaluate(&reasons)
        entries[subject] = Entry(result: result, reasons: reasons.texts[countBefore...])
        return result
    }
}

extension User {
    /// Returns the user with a cache for the results of large audiences. Use the returned user for all decisions of a
    /// request that have the same stored attributes.
    public func cachingConditions() -> User {
        guard conditionCache == nil else { return self }
        var user = self
        user.conditionCache = ConditionCache()
        return user
    }
}

extension Condition {
    /// The number of conditions on attributes and the like up to which evaluating is faster than caching.
    private static let smallSize = 16

    /// Whether the conditions are large enough to be worth caching.
    var isLarge: Bool { leafCount > Self.smallSize }

    /// Returns the conditions, cached if they are large.
    func cachedIfLarge(as subject: ConditionCache.Subject) -> Condition {
        isLarge ? .cached(subject, self) : self
    }

    private var leafCount: Int {
        switch self {
        case .and(let conditions), .or(let conditions): conditions.reduce(0) { $0 + $1.leafCount }
        case .not(let condition): condition?.leafCount ?? 1
        case .cached(_, let condition), .audience(_, let condition): condition.leafCount
        case .attribute, .missingAudience, .segment, .outsideSegment, .invalid: 1
        }
    }
}
