import ArgumentParser

/// Prints the manual in the terminal: a table of contents, or one article.
struct ManualCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "manual", abstract: "Prints the manual: its topics, or the article on one of them.")

    @Argument(help: "The topic, or how its name begins; upper and lower case are the same.")
    var topic: String?

    func run() throws {
        guard let topic else { return print(Manual.contents) }
        print(try Manual.article(on: topic).text)
    }
}
