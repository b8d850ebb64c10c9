import CEmbedded

/// The manual: the articles of `holdfast.docc` and those of the client library, embedded in the program.
///
/// `holdfast manual` prints them in the terminal, and ``ManualProtocol`` serves them as web pages. An article is named
/// by its topic. The landing page, which has the topic `Holdfast`, lists the articles in parts.
public enum Manual {
    /// An article of the manual, as Markdown.
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

        /// The first paragraph below the title, on one line.
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
        // The array of C ends with an element without a name.
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

    /// The parts of the manual, as the landing page lists them: a heading, and a list of links to articles.
    public static let parts: [Part] = {
        var parts: [Part] = []
        var title: Substring?
        var articles: [Article] = []
        func finishPart() {
            if let title, !articles.isEmpty { parts.append(Part(title: String(title), articles: articles)) }
            articles = []
        }
        for line in all.first?.markdown.split(separator: "\n") ?? [] {
            if line.hasPrefix("## ") {
                finishPart()
                title = line.dropFirst(3)
            } else if let link = line.wholeMatch(of: #/- \[.*\]\((.*)\)/#)?.output.1,
                let article = article(topic(of: link, in: "Holdfast"))
            {
                articles.append(article)
            }
        }
        finishPart()
        return parts
    }()

    /// Returns the article with a topic.
    public static func article(_ topic: String) -> Article? { byTopic[topic] }

    private static let byTopic = Dictionary(all.map { ($0.topic, $0) }) { first, _ in first }

    /// Returns the topic of the article to which a link leads.
    ///
    /// - Parameters:
    ///   - path: the path of the link, such as `Flags.md` or `../../HoldfastClient/HoldfastClient.docc/Flags.md`.
    ///   - topic: the topic of the article that has the link.
    static func topic(of path: Substring, in topic: String) -> String {
        let name = path.split(separator: "/").last.map { $0.hasSuffix(".md") ? $0.dropLast(3) : $0 } ?? ""
        let folder = path.dropLast(name.count + 3)
        // Links within the client library's articles have no folder.
        let isOfClient = folder.isEmpty ? topic.hasPrefix("Client/") : folder.contains("HoldfastClient")
        return (isOfClient ? "Client/" : "") + name
    }
}
