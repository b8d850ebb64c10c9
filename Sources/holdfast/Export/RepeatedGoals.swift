import JSON

/// Detects goals that the feed repeats: they were committed during the export, which has written them already.
///
/// It is used in three steps. First ``expect(_:)`` takes each goal and merge that the feed will repeat, then
/// ``find(_:)`` each line of the files, and at last ``takeRepeated(_:)`` each goal of the feed before it is written.
///
/// Goals need not have an id, so all members are compared. A user who was merged during the export counts as the
/// account, because the export may have read the goal before or after the merge.
struct RepeatedGoals {
    /// The goals of the feed that are not counted yet, because a later merge may change the account of their user. A
    /// content is the hash of a goal without its user.
    private var uncounted: [(user: String, content: Int)] = []
    /// The account into which a user was merged.
    private var accounts: [String: String] = [:]
    /// The number of occurrences of each goal in the feed, and the number of them in the files, by the goal's hash.
    private var counts: [Int: (feed: Int, files: Int)] = [:]
    /// Users who were erased during the export. Their earlier lines in the files do not count.
    private var erased: Set<String> = []

    /// Whether the feed will repeat no goal.
    var isEmpty: Bool { uncounted.isEmpty && counts.isEmpty }

    /// Processes a line of the kind `goal` or `merge` of the feed. The files must be processed after all lines of the
    /// feed.
    mutating func expect(_ line: JSONObject) {
        guard let user = line["user_id"]?.string else { return }
        guard let from = line["from"]?.string else { return uncounted.append((user, Self.content(line))) }
        let former = account(of: from)
        let latest = account(of: user)
        if former != latest { accounts[former] = latest }
    }

    /// Processes a line of the files.
    mutating func find(_ line: JSONObject) {
        // All goals of the feed are known now, and so are the accounts of their users.
        for (user, content) in uncounted { counts[key(user, content), default: (0, 0)].feed += 1 }
        uncounted = []
        let key = key(line)
        guard let count = counts[key], count.files < count.feed else { return }
        counts[key]?.files += 1
    }

    /// Processes a goal of the feed that is about to be written.
    ///
    /// - Returns: whether the files already have the goal.
    mutating func takeRepeated(_ goal: JSONObject) -> Bool {
        let key = key(goal)
        guard let count = counts[key], count.files > 0, !erased.contains(goal["user_id"]?.string ?? "") else {
            return false
        }
        counts[key]?.files -= 1
        return true
    }

    /// Processes a line of the kind `erasure` of the feed.
    mutating func erase(_ line: JSONObject) {
        if !counts.isEmpty, let user = line["user_id"]?.string { erased.insert(user) }
    }

    /// Returns the account to which a user belongs after all merges.
    private func account(of user: String) -> String {
        var user = user
        while let next = accounts[user] { user = next }
        return user
    }

    /// Returns the key of a goal in ``counts``.
    private func key(_ goal: JSONObject) -> Int { key(goal["user_id"]?.string ?? "", Self.content(goal)) }

    /// Returns the hash of a goal and of the account of its user.
    private func key(_ user: String, _ content: Int) -> Int {
        var hasher = Hasher()
        hasher.combine(account(of: user))
        hasher.combine(content)
        return hasher.finalize()
    }

    /// Returns the hash of all members that belong to the goal itself, other than the user.
    private static func content(_ goal: JSONObject) -> Int {
        var content = JSONObject()
        for member in goal where !["line", "cursor", "kind", "at", "user_id"].contains(member.key) {
            content[member.key] = member.value
        }
        return JSONValue.object(content).encoded().hashValue
    }
}
