import CEmbedded
import Glibc

/// The manual: the articles of `holdfast.docc` and those of the client library, embedded in the program.
public enum Manual {
    public struct Article: Sendable {
        /// The topic, such as `Experiments`, or `Client/Flags` for an article of the client library.
        public let topic: String
        public let title: String
        public let markdown: String
        let sections: [Section]

        init(topic: String, markdown: String) {
            self.topic = topic
            self.markdown = markdown
            sections = Section.all(of: markdown)
            title = sections.first?.heading ?? topic
        }

        /// The paragraph below the title.
        public var summary: String {
            let paragraphs = markdown.split(separator: "\n\n", maxSplits: 2)
            return paragraphs.dropFirst().first.map { String($0.replacing("\n", with: " ")) } ?? ""
        }

        /// The Markdown with links that a reader in a terminal can follow.
        public var terminalText: String {
            var text = markdown.replacing(#/\[([^\]\n]+)\]\(([^)\s]+\.md)(#[^)\s]*)?\)/#) { match in
                let (_, label, path, _) = match.output
                let topic = Manual.topic(of: path, in: topic)
                let command = "`holdfast manual \(topic)`"
                return label == Manual.article(topic)?.title ?? "" ? command : "\(label) (\(command))"
            }
            while text.last?.isNewline == true { text.removeLast() }
            return text
        }
    }

    /// A part of the landing page, such as "Connect", with its articles in the order of reading.
    public struct Part: Sendable {
        public let title: String
        public let articles: [Article]
    }

    /// All articles, the landing page first.
    static let all: [Article] = {
        var articles: [Article] = []
        var file = embedded_manual()
        while let next = file, let name = next.pointee.name, let text = next.pointee.text {
            articles.append(Article(topic: String(cString: name), markdown: String(cString: text)))
            file = next + 1
        }
        return articles
    }()

    /// All articles but the landing page.
    public static var articles: some Collection<Article> { all.dropFirst() }

    /// The parts of the manual, as the landing page lists them.
    public static let parts: [Part] = {
        var parts: [Part] = []
        var title: Substring?
        var articles: [Article] = []
        func finish() {
            if let title, !articles.isEmpty { parts.append(Part(title: String(title), articles: articles)) }
            articles = []
        }
        for line in all.first?.markdown.split(separator: "\n") ?? [] {
            if line.hasPrefix("## ") {
                finish()
                title = line.dropFirst(3)
            } else if let link = line.wholeMatch(of: #/- \[.*\]\((.*)\)/#)?.output.1,
                let article = article(topic(of: link, in: "Holdfast"))
            {
                articles.append(article)
            }
        }
        finish()
        return parts
    }()

    public static func article(_ topic: String) -> Article? { byTopic[topic] }

    private static let byTopic = Dictionary(all.map { ($0.topic, $0) }) { first, _ in first }

    /// The topic of the article at a path that an article names.
    ///
    /// - Parameters:
    ///   - path: such as `Flags.md` or `../../HoldfastClient/HoldfastClient.docc/Flags.md`.
    ///   - topic: of the article with the link.
    static func topic(of path: Substring, in topic: String) -> String {
        let name = path.split(separator: "/").last.map { $0.hasSuffix(".md") ? $0.dropLast(3) : $0 } ?? ""
        let folder = path.dropLast(name.count + 3)
        let isOfClient = folder.isEmpty ? topic.hasPrefix("Client/") : folder.contains("HoldfastClient")
        return (isOfClient ? "Client/" : "") + name
    }
}

extension Manual {
    /// The text below a heading, up to the next heading.
    struct Section: Sendable {
        let heading: String
        let lines: [Substring]
        /// The text in lower case, for searches.
        private let letters: [UInt8]

        private init(_ lines: [Substring]) {
            heading = lines.first.map { String($0.drop { $0 == "#" || $0 == " " }.filter { $0 != "`" }) } ?? ""
            self.lines = lines
            letters = Array(lines.joined(separator: "\n").lowercased().utf8)
        }

        static func all(of markdown: String) -> [Section] {
            var sections: [Section] = []
            var lines: [Substring] = []
            var isCode = false
            for line in markdown.split(separator: "\n", omittingEmptySubsequences: false) {
                if line.drop(while: { $0 == " " }).hasPrefix("```") { isCode.toggle() }
                if !isCode, line.hasPrefix("#"), !lines.isEmpty {
                    sections.append(Section(lines))
                    lines = []
                }
                lines.append(line)
            }
            sections.append(Section(lines))
            return sections
        }

        /// Returns a score by the number of occurrences of the words; `nil` if a word does not occur. Occurrences of
        /// the whole phrase and in the heading count more.
        ///
        /// - Parameters:
        ///   - words: the words in lower case.
        ///   - phrase: the words, separated by spaces.
        func score(of words: [[UInt8]], together phrase: [UInt8]) -> Int? {
            var score = min(letters.count(of: phrase), 5) * 10
            let heading = Array(heading.lowercased().utf8)
            for word in words {
                let count = letters.count(of: word)
                guard count > 0 else { return nil }
                score += min(count, 10) + 20 * min(1, heading.count(of: word))
            }
            return score
        }
    }

    /// A section that contains all words of a search.
    public struct Hit: Sendable {
        public let article: Article
        /// The title of the article, if the words are in its first paragraphs.
        public let heading: String
        /// The first line with one of the words.
        public let line: String
    }

    /// The rows of the glossary by their terms, in lower case.
    private static let glossary: [String: Substring] = {
        let section = article("Concepts")?.sections.first { $0.heading == "Glossary" }
        var rows: [String: Substring] = [:]
        for row in section?.lines ?? [] where row.hasPrefix("| ") {
            for term in row.dropFirst(2).prefix(while: { $0 != "|" }).split(whereSeparator: { ",()".contains($0) }) {
                let term = term.split(separator: " ").joined(separator: " ").lowercased()
                if !term.isEmpty { rows[term] = rows[term] ?? row }
            }
        }
        return rows
    }()

    /// Returns the sections that contain all words of a query, ignoring case, in descending order of their score.
    public static func search(_ query: String, limit: Int = 20) -> [Hit] {
        let words = query.lowercased().split(whereSeparator: \.isWhitespace).prefix(8).map { Array($0.utf8) }
        let phrase = Array(words.joined(separator: [UInt8(ascii: " ")]))
        guard !words.isEmpty else { return [] }
        let asked = String(decoding: phrase, as: UTF8.self)
        let term = glossary[asked] ?? glossary.keys.filter { $0.hasPrefix(asked + " ") }.min().flatMap { glossary[$0] }
        var found: [(score: Int, article: Article, section: Section)] = []
        for article in articles {
            // The last part explains internals, which count less than articles for users.
            let divisor = parts.last?.articles.contains { $0.topic == article.topic } == true ? 2 : 1
            for section in article.sections {
                if term != nil, article.topic == "Concepts", section.heading == "Glossary" {
                    // An entry of the glossary comes first.
                    found.append((.max, article, section))
                    continue
                }
                guard let score = section.score(of: words, together: phrase) else { continue }
                found.append((score / divisor, article, section))
            }
        }
        // Sections with equal scores stay in the order of the manual, because Swift's sort is stable.
        found.sort { $0.score > $1.score }
        return found.prefix(limit).map { score, article, section in
            let lines = section.lines.dropFirst().map { line in
                let letters = Array(line.lowercased().utf8)
                return (count: words.count { letters.count(of: $0) > 0 }, line: line)
            }
            let most = lines.map(\.count).max()
            let line = score == .max ? term : lines.first { $0.count == most }?.line
            return Hit(article: article, heading: section.heading, line: String(line ?? section.lines.first ?? ""))
        }
    }
}

extension [UInt8] {
    /// Returns the number of words that begin with a text. "UPS" does not match "groups".
    fileprivate func count(of word: [UInt8]) -> Int {
        guard let first = word.first, count >= word.count else { return 0 }
        return withUnsafeBytes { text in
            guard let base = text.baseAddress else { return 0 }
            var (count, start) = (0, 0)
            while let found = memchr(base + start, Int32(first), text.count - word.count + 1 - start) {
                let place = base.distance(to: found)
                let isAtBeginning = place == 0 || !text[place - 1].isLetter
                if isAtBeginning, memcmp(found, word, word.count) == 0 { count += 1 }
                start = place + 1
                if start + word.count > text.count { break }
            }
            return count
        }
    }
}

extension UInt8 {
    /// Whether the byte is a lower-case ASCII letter.
    fileprivate var isLetter: Bool { (0x61...0x7A).contains(self) }
}
