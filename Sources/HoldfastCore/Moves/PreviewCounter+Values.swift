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

    /// The maximum number of users whose values are compared. It bounds the time of a preview.
    static let valueLimit = 100_000

    /// Evaluates a flag before and after a change, for the users with a stored profile or stored attributes. Stores
    /// nothing.
    ///
    /// - Throws: 503 if too many counts are in progress.
    public func countValues(
        of key: Identifier, from project: Project, to edited: Datafile
    ) async throws -> ValueCounts {
        try await catalog.whileCounting { session in
            var counts = ValueCounts()
            var lastUserID: Identifier?
            repeat {
                let page = try await session.read(.knownUsers(prefix: "", after: lastUserID, limit: Self.pageSize))
                let userIDs = page.map(\.userID)
                for (userID, stored) in zip(userIDs, await Self.storedData(of: userIDs, in: project, session)) {
                    counts.count(key, of: userID, stored, from: project.datafile, to: edited)
                }
                lastUserID = page.count < Self.pageSize ? nil : userIDs.last
                await Task.yield()
            } while lastUserID != nil && counts.examined < Self.valueLimit
            counts.isComplete = lastUserID == nil
            return counts
        }
    }

    /// Reads the stored data of some users, in their order. Damaged records count as unknown.
    private static func storedData(
        of userIDs: [Identifier], in project: Project, _ session: any StoreSession
    ) async -> [StickyAssignments] {
        let profiles = await settled(each: userIDs) { session.profile(of: $0, $1) }
        // Without a schema, no audience can test stored attributes.
        let attributes = project.schema.isEmpty ? [] : await settled(each: userIDs) { session.attributes(of: $0, $1) }
        return userIDs.indices.map { index in
            let storedAttributes =
                attributes.isEmpty
                ? nil : StoredAttributes(schema: project.schema, record: try? attributes[index].get())
            return StickyAssignments(
                try? profiles[index].get(), userIDs[index], project, attributes: storedAttributes)
        }
    }
}

extension PreviewCounter.ValueCounts {
    /// Counts one user.
    ///
    /// - Parameters:
    ///   - key: the key of the flag.
    ///   - stored: the stored data of the user, which the change does not touch.
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
        // Equally frequent changes are sorted by their variations, so that the same counts give the same response.
        let changed = changes.sorted { left, right in
            left.value == right.value ? left.key.text < right.key.text : left.value > right.value
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
    /// The variations as a text, by which equally frequent changes are sorted.
    fileprivate var text: String { "\(from?.string ?? "") \(to?.string ?? "")" }
}
