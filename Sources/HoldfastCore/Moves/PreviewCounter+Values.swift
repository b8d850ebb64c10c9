public import Bucketing
import Definitions
public import JSON
import Storage

extension PreviewCounter {
    /// The numbers of stored users who get another value of a flag after a change.
    public struct ValueCounts: Sendable {
        /// The keys of the variations before and after the change; `nil` for none.
        public struct Change: Hashable, Sendable {
            public var from: Identifier?
            public var to: Identifier?
        }

        /// The number of examined users.
        public fileprivate(set) var examined = 0
        /// Whether all stored users were examined. Otherwise only the first ones were, in the order of their ids.
        public fileprivate(set) var isComplete = false
        /// The numbers of users whose value changes.
        public fileprivate(set) var changes: [Change: Int] = [:]
        /// The number of examined users who have each variation after the change.
        public fileprivate(set) var results: [Identifier: Int] = [:]

        public init() {}
    }

    /// The maximum number of users whose values are compared.
    static let valueLimit = 100_000

    /// Evaluates a flag before and after a change, for the users with a stored profile or stored attributes. Stores
    /// nothing.
    ///
    /// - Throws: 503 if too many counts are in progress.
    public func countValues(
        of key: Identifier, from project: Project, to edited: Datafile
    ) async throws -> ValueCounts {
        return try await catalog.whileCounting { session in
            var counts = ValueCounts()
            var lastUserID: Identifier?
            repeat {
                let page = try await session.read(.knownUsers(prefix: "", after: lastUserID, limit: Self.pageSize))
                let userIDs = page.map(\.userID)
                let profiles = await settled(each: userIDs) { session.profile(of: $0, $1) }
                let attributes =
                    project.schema.isEmpty ? [] : await settled(each: userIDs) { session.attributes(of: $0, $1) }
                for (index, userID) in userIDs.enumerated() {
                    // Damaged records count as unknown.
                    let stored = StickyAssignments(
                        try? profiles[index].get(), userID, project,
                        attributes: attributes.isEmpty
                            ? nil : StoredAttributes(schema: project.schema, record: try? attributes[index].get()))
                    counts.count(key, of: userID, stored, from: project.datafile, to: edited)
                }
                lastUserID = page.count < Self.pageSize ? nil : userIDs.last
                await Task.yield()
            } while lastUserID != nil && counts.examined < Self.valueLimit
            counts.isComplete = lastUserID == nil
            return counts
        }
    }
}

extension PreviewCounter.ValueCounts {
    /// Counts one user.
    fileprivate mutating func count(
        _ key: Identifier, of userID: Identifier, _ stored: StickyAssignments, from former: Datafile,
        to edited: Datafile
    ) {
        func evaluate(_ datafile: Datafile) -> FlagEvaluation? {
            DecisionService(datafile: datafile).decide(key, for: User(id: userID), stored: stored)
                .map { FlagEvaluation($0.value, datafile) }
        }
        examined += 1
        let before = evaluate(former)
        let after = evaluate(edited)
        if let variation = after?.variationKey { results[variation, default: 0] += 1 }
        guard before?.value != after?.value else { return }
        changes[Change(from: before?.variationKey, to: after?.variationKey), default: 0] += 1
    }

    /// The counts in the response of a preview, the most frequent changes first.
    public var json: JSONValue {
        let changed = changes.sorted { left, right in
            // The counts are on opposite sides: they descend.
            (right.value, left.key.sortKey) < (left.value, right.key.sortKey)
        }
        return [
            "examined": .integer(Int64(examined)), "complete": .bool(isComplete),
            "changed": .integer(Int64(changes.values.reduce(0, +))),
            "changes": .array(
                changed.map { change, users in
                    [
                        "from": change.from.map { JSONValue($0) } ?? .null,
                        "to": change.to.map { JSONValue($0) } ?? .null, "users": .integer(Int64(users)),
                    ]
                }),
            "results": .object(
                results.sorted { $0.key < $1.key }.reduce(into: JSONObject()) { object, result in
                    object[result.key.string] = .integer(Int64(result.value))
                }),
        ]
    }
}

extension PreviewCounter.ValueCounts.Change {
    /// Orders changes with the same count.
    fileprivate var sortKey: String { "\(from?.string ?? "") \(to?.string ?? "")" }
}
