/// The evaluations of the last users of a device, on disk, the most recent user first.
final class EvaluationCache: Sendable {
    private let disk: DiskCache
    private let limit: Int
    /// The evaluations; `nil` until they are read from disk, at the first access.
    private let users = Locked<[Evaluations.Content]?>(nil)

    private static let name = "evaluations.cache"

    /// - Parameter limit: the maximum number of users.
    init(disk: DiskCache, limit: Int) {
        self.disk = disk
        self.limit = limit
    }

    /// Returns the evaluations of a user; `nil` if they are not cached.
    func content(of userID: String) -> Evaluations.Content? {
        users.withLock { users in load(&users).first { $0.userID.hasSameBytes(as: userID) } }
    }

    /// Caches the evaluations of a user, who is now the most recent one.
    func keep(_ content: Evaluations.Content) {
        users.withLock { users in
            let others = load(&users).filter { !$0.userID.hasSameBytes(as: content.userID) }
            let new = [content] + others.prefix(limit - 1)
            users = new
            disk.write(Self.name, new)
        }
    }

    /// Returns all evaluations, from disk at the first access.
    private func load(_ users: inout [Evaluations.Content]?) -> [Evaluations.Content] {
        if let users { return users }
        let stored = disk.read(Self.name, as: Stored.self)?.users ?? []
        users = stored
        return stored
    }

    /// The content of the file.
    private struct Stored: Decodable {
        var users: [Evaluations.Content]

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            do {
                users = try container.decode([Evaluations.Content].self)
            } catch {
                // The file of an earlier release has the evaluations of one user.
                users = [try container.decode(Evaluations.Content.self)]
            }
        }
    }
}
