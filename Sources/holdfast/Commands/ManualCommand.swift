import ArgumentParser
import CEmbedded
import HoldfastCore

/// Prints the manual in the terminal: a table of contents, or one article.
struct ManualCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "manual", abstract: "Prints the manual: its topics, or the article on one of them.")

    @Argument(help: "The topic or the beginning of its name; case does not matter.")
    var topic: String?

    func run() throws {
        guard let topic else { return print(Manual.contents) }
        print(try Manual.article(on: topic).text)
    }
}

/// The manual, embedded in the program from the articles in `holdfast.docc`.
enum Manual {
    struct Article {
        let topic: String
        /// As Markdown, with links that a reader in a terminal can follow.
        let text: String

        init(_ topic: String, _ content: String) {
            self.topic = topic
            var text = content.replacing(#/<doc:(\w+)>/#) { "`holdfast manual \($0.output.1)`" }
            while text.last?.isNewline == true { text.removeLast() }
            self.text = text
        }

        /// The paragraph below the title.
        var summary: String {
            let paragraphs = text.split(separator: "\n\n", maxSplits: 2)
            return paragraphs.dropFirst().first.map { String($0.replacing("\n", with: " ")) } ?? ""
        }
    }

    static let articles: [Article] = {
        var articles: [Article] = []
        var file = embedded_manual()
        while let next = file, let name = next.pointee.name, let text = next.pointee.text {
            articles.append(Article(String(cString: name), String(cString: text)))
            file = next + 1
        }
        return articles
    }()

    /// The topics with a line on each.
    static var contents: String {
        let width = articles.map(\.topic.count).max() ?? 0
        let lines = articles.map { article in
            "  " + article.topic.padded(to: width + 2) + article.summary
        }
        return (["Print an article with: holdfast manual TOPIC", ""] + lines).joined(separator: "\n")
    }

    /// - Parameter name: a topic or the beginning of one, in upper or lower case.
    /// - Throws: ``Failure``, which names the nearest topic, or all if none is near.
    static func article(on name: String) throws -> Article {
        let wanted = name.lowercased()
        let candidates = articles.filter { $0.topic.lowercased().hasPrefix(wanted) }
        if let exact = candidates.first(where: { $0.topic.lowercased() == wanted }) { return exact }
        if candidates.count == 1, !wanted.isEmpty { return candidates[0] }
        let topics = articles.map(\.topic)
        let required = "the topic must be one that 'holdfast manual' lists; got '\(name)'"
        if let nearest = Spelling.nearest(to: name, among: topics) {
            throw Failure("\(required); did you mean \(nearest)?")
        }
        let choices = candidates.isEmpty || wanted.isEmpty ? topics : candidates.map(\.topic)
        throw Failure("\(required); choose one of \(choices.joined(separator: ", "))")
    }
}

extension String {
    /// With spaces at the end, as many as it takes to fill a column.
    func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(0, width - count))
    }
}
