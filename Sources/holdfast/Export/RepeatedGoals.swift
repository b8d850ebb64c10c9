import JSON

/// The goals that an export has read and that the feed repeats, because they were committed meanwhile.
///
/// Goals need no id, so all of their members are compared. A user who was merged meanwhile counts as the account: the
/// export may have read the goal before or after the merge.
struct RepeatedGoals {
    private var expected: [(user: String, content: Int)] = []
    private var accounts: [String: String] = [:]
    /// How often each goal is in the feed, and of these, how often in the files.
    private var counts: [Int: (feed: Int, files: Int)] = [:]
    /// Users who were erased meanwhile: what files have of them before that does not count.
    private var erased: Set<String> = []

    var isEmpty: Bool { expected.isEmpty && counts.isEmpty }

    /// Takes a line of the kind `goal` or `merge` of the feed. All of them come before the files.
    mutating func expect(_ line: JSONObject) {
        guard let user = line["user_id"]?.string else { return }
        guard let from = line["from"]?.string else { return expected.append((user, Self.content(line))) }
        let (old, new) = (account(of: from), account(of: user))
        if old != new { accounts[old] = new }
    }

    /// Takes a line of the files.
    mutating func find(_ line: JSONObject) {
        for (user, content) in expected { counts[key(user, content), default: (0, 0)].feed += 1 }
        expected = []
        let key = key(line)
        guard let count = counts[key], count.files < count.feed else { return }
        counts[key]?.files += 1
    }

    /// Takes a goal of the feed, now to be written.
    ///
    /// - Returns: whether the files have it already.
    mutating func has(_ goal: JSONObject) -> Bool {
        let key = key(goal)
        guard let count = counts[key], count.files > 0, !erased.contains(goal["user_id"]?.string ?? "") else {
            return false
        }
        counts[key]?.files -= 1
        return true
    }

    mutating func erase(_ line: JSONObject) {
        if !counts.isEmpty, let user = line["user_id"]?.string { erased.insert(user) }
    }

    private func account(of user: String) -> String {
        var user = user
        while let next = accounts[user] { user = next }
        return user
    }

    private func key(_ goal: JSONObject) -> Int { key(goal["user_id"]?.string ?? "", Self.content(goal)) }

    private func key(_ user: String, _ content: Int) -> Int {
        var hasher = Hasher()
        hasher.combine(account(of: user))
        hasher.combine(content)
        return hasher.finalize()
    }

    private static func content(_ goal: JSONObject) -> Int {
        var content = JSONObject()
        for member in goal where !["line", "cursor", "kind", "at", "user_id"].contains(member.key) {
            content[member.key] = member.value
        }
        return JSONValue.object(content).encoded().hashValue
    }
}
