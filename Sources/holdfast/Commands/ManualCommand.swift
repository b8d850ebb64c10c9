import ArgumentParser
import Definitions
import HoldfastAPI
import HoldfastCore

/// Prints the manual in the terminal: the table of contents, an article, or the sections that contain some words.
struct ManualCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "manual", abstract: "Prints the manual: its topics, or the article on one of them.")

    @Argument(help: "The topic or the beginning of its name; case does not matter.")
    var topic: String?

    @Option(help: "Lists the sections that contain all of these words.")
    var search: String?

    func validate() throws {
        guard topic == nil || search == nil else {
            throw ValidationError("the manual takes a topic or --search, not both")
        }
    }

    func run() throws {
        if let search { return print(try Manual.findings(of: search)) }
        guard let topic else { return print(Manual.contents) }
        print(try Manual.article(near: topic).terminalText)
    }
}

extension Manual {
    /// The table of contents: the topics by part, each with its summary.
    fileprivate static var contents: String {
        let width = parts.flatMap(\.articles).map(\.topic.count).max() ?? 0
        let lines = parts.flatMap { part in
            ["", part.title] + part.articles.map { "  " + $0.topic.padded(to: width + 2) + $0.summary }
        }
        let usage =
            "Print an article with: holdfast manual TOPIC\nFind words with:       holdfast manual --search WORDS"
        return ([usage] + lines).joined(separator: "\n")
    }

    /// Returns the article that a person means.
    ///
    /// - Parameter name: a topic or the beginning of one, in upper or lower case.
    /// - Throws: ``Failure`` if the name means no article, or several. The failure names the nearest topic. If no topic
    ///   is near, it names an article that contains the words, or it lists topics to choose from.
    fileprivate static func article(near name: String) throws -> Article {
        let wanted = name.lowercased()
        let candidates = articles.filter { $0.topic.lowercased().hasPrefix(wanted) }
        if let exact = candidates.first(where: { $0.topic.lowercased() == wanted }) { return exact }
        if candidates.count == 1, !wanted.isEmpty { return candidates[0] }
        let topics = articles.map(\.topic)
        let required = "the topic must be one that 'holdfast manual' lists; got '\(name)'"
        if let nearest = Spelling.nearest(to: name, among: topics) {
            throw Failure("\(required); did you mean \(nearest)?")
        }
        let hits = search(name, limit: 1)
        if candidates.isEmpty, let hit = hits.first {
            throw Failure(
                "\(required); \(hit.article.topic) speaks of it, and 'holdfast manual --search' finds more")
        }
        let choices = candidates.isEmpty || wanted.isEmpty ? topics : candidates.map(\.topic)
        throw Failure("\(required); choose one of \(choices.joined(separator: ", "))")
    }

    /// Returns the results of a search, two lines for each.
    ///
    /// - Throws: ``Failure`` if no section has all words.
    fileprivate static func findings(of words: String) throws -> String {
        let hits = search(words)
        guard !hits.isEmpty else { throw Failure("the manual has no section with all words of '\(words)'") }
        return hits.map { "\($0.article.topic): \($0.heading)\n    \($0.line)" }.joined(separator: "\n")
    }
}

extension String {
    /// Returns the text with trailing spaces up to a width.
    func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(0, width - count))
    }
}
