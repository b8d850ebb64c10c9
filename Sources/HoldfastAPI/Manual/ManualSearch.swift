import Glibc

/// The search of the manual. It finds the sections of articles that contain all words of a query, and sorts them by the
/// number of occurrences.
extension Manual {
    /// A heading with the text below it, up to the next heading.
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

        /// Splits an article into its sections.
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
        func score(of words: [[UInt8]], phrase: [UInt8]) -> Int? {
            // Each count has a limit, so that a section does not come first only because it is long.
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

    /// A result of a search: a section that contains all words.
    public struct Hit: Sendable {
        public let article: Article
        /// The title of the article, if the words are in its first paragraphs.
        public let heading: String
        /// The first of the lines that contain the most words.
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

    /// Returns the row of the glossary for a term; if there is none, for the first term that begins with the phrase.
    private static func glossaryEntry(for phrase: String) -> Substring? {
        glossary[phrase] ?? glossary.keys.filter { $0.hasPrefix(phrase + " ") }.min().flatMap { glossary[$0] }
    }

    /// Returns the sections that contain all words of a query, ignoring case, in descending order of their score.
    public static func search(_ query: String, limit: Int = 20) -> [Hit] {
        // Further words are ignored, which limits the time of a search.
        let words = query.lowercased().split(whereSeparator: \.isWhitespace).prefix(8).map { Array($0.utf8) }
        let phrase = Array(words.joined(separator: [UInt8(ascii: " ")]))
        guard !words.isEmpty else { return [] }
        let entry = glossaryEntry(for: String(decoding: phrase, as: UTF8.self))
        return matches(of: words, phrase, entry: entry).prefix(limit).map { match in
            let lines = match.section.lines
            let line = match.isEntry ? entry : bestLine(of: lines.dropFirst(), for: words)
            return Hit(
                article: match.article, heading: match.section.heading, line: String(line ?? lines.first ?? ""))
        }
    }

    /// A section that a search has found.
    private struct Match {
        let score: Int
        let article: Article
        let section: Section
        /// Whether the section is the glossary, because it has an entry for the query.
        var isEntry = false
    }

    /// Returns the sections that contain all words, in descending order of their score.
    ///
    /// - Parameter entry: the row of the glossary for the query, if there is one. The glossary then comes first.
    private static func matches(of words: [[UInt8]], _ phrase: [UInt8], entry: Substring?) -> [Match] {
        var matches: [Match] = []
        for article in articles {
            // The last part explains internals, which count less than articles for users.
            let divisor = parts.last?.articles.contains { $0.topic == article.topic } == true ? 2 : 1
            for section in article.sections {
                if entry != nil, article.topic == "Concepts", section.heading == "Glossary" {
                    matches.append(Match(score: .max, article: article, section: section, isEntry: true))
                } else if let score = section.score(of: words, phrase: phrase) {
                    matches.append(Match(score: score / divisor, article: article, section: section))
                }
            }
        }
        // Sections with equal scores stay in the order of the manual, because Swift's sort is stable.
        return matches.sorted { $0.score > $1.score }
    }

    /// Returns the first of the lines that contain the most words.
    private static func bestLine(of lines: ArraySlice<Substring>, for words: [[UInt8]]) -> Substring? {
        let counts = lines.map { line in
            let letters = Array(line.lowercased().utf8)
            return words.count { letters.count(of: $0) > 0 }
        }
        let most = counts.max()
        return zip(lines, counts).first { _, count in count == most }?.0
    }
}

extension [UInt8] {
    /// Returns the number of words that begin with `word`, which has lower-case letters: "ups" does not match "groups".
    fileprivate func count(of word: [UInt8]) -> Int {
        guard let first = word.first, count >= word.count else { return 0 }
        return withUnsafeBytes { text in
            guard let base = text.baseAddress else { return 0 }
            var count = 0
            var start = 0
            while let found = memchr(base + start, Int32(first), text.count - word.count + 1 - start) {
                let position = base.distance(to: found)
                let beginsWord = position == 0 || !text[position - 1].isLetter
                if beginsWord, memcmp(found, word, word.count) == 0 { count += 1 }
                start = position + 1
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
