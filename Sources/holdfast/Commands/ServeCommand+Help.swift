/// What helps people who look for an option of `holdfast serve`.
extension ServeCommand {
    /// How the help of this command begins.
    static let overview = "OVERVIEW: Runs the server."

    /// The groups of options that the help shows, by the names or beginnings of names; the last has all others.
    ///
    /// They are not ArgumentParser's groups, which make the start of a debug build slow.
    private static let groups: [(title: String, options: [String])] = [
        (
            "BASICS",
            [
                "--listen", "--database", "--datafile", "--share-ids", "--read-only", "--log-", "--access-log",
                "--traces-",
                "--no-console", "--mcp", "--shutdown-", "--reuse-port", "--event-loops", "--version", "-h",
            ]
        ),
        (
            "ACCESS",
            [
                "--tokens-file", "--jwt-", "--oidc-", "--approvals", "--cors-origins", "--allowed-hosts",
                "--trusted-proxies",
            ]
        ),
        (
            "USERS AND RETENTION",
            ["--assignment-ttl", "--max-assignments", "--audit-", "--event-retention", "--feed-", "--datafile-history"]
        ),
        ("EDGE", ["--upstream", "--max-lag", "--offline-enrollment", "--outbox-"]),
        ("WEBHOOKS", ["--webhook-", "--public-url"]),
        ("LIMITS", [""]),
    ]

    /// Orders the options of the help by groups.
    static func grouped(help: String) -> String {
        guard let range = help.firstRange(of: "OPTIONS:\n") else { return help }
        var entries = Array(repeating: [Substring](), count: groups.count)
        var group = 0
        for line in help[range.upperBound...].split(separator: "\n") {
            // Further lines of a description are indented more.
            if line.hasPrefix("  -") {
                let name = line.dropFirst(2)
                // Of the names that fit, the longest counts: --datafile-history is not --datafile.
                let fitting = groups.enumerated().map { index, group in
                    (index, group.options.filter { name.hasPrefix($0) }.map(\.count).max() ?? -1)
                }
                group = fitting.max { $0.1 < $1.1 }?.0 ?? groups.count - 1
            }
            entries[group].append(line)
        }
        let sections = zip(groups, entries).filter { !$1.isEmpty }.map { group, lines in
            "\(group.title):\n" + lines.joined(separator: "\n")
        }
        return help[..<range.lowerBound] + sections.joined(separator: "\n\n")
    }

    /// Refuses the words of other servers for the address.
    ///
    /// - Throws: ``Failure``, which names `--listen`.
    static func expectOwnWords(_ arguments: [String]) throws {
        guard arguments.first == "serve" else { return }
        let words = ["--port", "--host", "--bind", "--address", "-p"]
        for argument in arguments.dropFirst() {
            guard let word = words.first(where: { argument == $0 || argument.hasPrefix($0 + "=") }) else { continue }
            throw Failure(
                "the address must be given by --listen HOST:PORT, such as --listen 127.0.0.1:9000; got \(word)")
        }
    }
}
