/// The help of `holdfast serve`, and advice for options of other servers.
extension ServeCommand {
    /// The beginning of the help of this command.
    static let overview = "OVERVIEW: Runs the server."

    /// The groups of options in the help, by names of options or their beginnings. The last group has all other
    /// options.
    ///
    /// ArgumentParser's groups are not used, because they make the start of a debug build slow.
    private static let groups: [(title: String, options: [String])] = [
        (
            "BASICS",
            [
                "--listen", "--database", "--datafile", "--share-ids", "--read-only", "--no-console", "--mcp",
                "--shutdown-", "--reuse-port", "--event-loops", "--version", "-h",
            ]
        ),
        ("LOG AND TRACES", ["--log-", "--access-log", "--traces-"]),
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
        // The group of the option whose lines are being read.
        var group = 0
        for line in help[range.upperBound...].split(separator: "\n") {
            // Further lines of a description are indented more.
            if line.hasPrefix("  -") {
                let name = line.dropFirst(2)
                // The longest matching name counts: --datafile-history does not belong to --datafile.
                let matchLengths = groups.map { candidate in
                    candidate.options.filter { name.hasPrefix($0) }.map(\.count).max() ?? -1
                }
                group = matchLengths.indices.max { matchLengths[$0] < matchLengths[$1] } ?? groups.count - 1
            }
            entries[group].append(line)
        }
        let sections = zip(groups, entries).filter { !$1.isEmpty }.map { group, lines in
            "\(group.title):\n" + lines.joined(separator: "\n")
        }
        return help[..<range.lowerBound] + sections.joined(separator: "\n\n")
    }

    /// The names that other servers use for two options.
    private static let foreignWords: [(words: [String], advice: String)] = [
        (
            ["--port", "--host", "--bind", "--address", "-p"],
            "the address must be given by --listen HOST:PORT, such as --listen 127.0.0.1:9000"
        ),
        (
            ["--db", "--database-url", "--dsn", "--sqlite", "--postgres", "--data"],
            "the database must be given by --database, such as --database holdfast.db or --database postgresql://host/name"
        ),
    ]

    /// Refuses options by the names that other servers use.
    ///
    /// - Throws: ``Failure`` with the name of the corresponding option.
    static func expectOwnWords(_ arguments: [String]) throws {
        guard arguments.first == "serve" else { return }
        for argument in arguments.dropFirst() {
            for (words, advice) in foreignWords {
                guard let word = words.first(where: { argument == $0 || argument.hasPrefix($0 + "=") }) else {
                    continue
                }
                throw Failure("\(advice); got \(word)")
            }
        }
    }
}
