import ArgumentParser
import Foundation
import HoldfastCore

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

/// The manual, embedded in the program from the articles in `holdfast.docc`.
enum Manual {
    struct Article {
        let topic: String
        /// As Markdown, with links that a reader in a terminal can follow.
        let text: String

        init(_ topic: String, _ content: [UInt8]) {
            self.topic = topic
            let text = String(decoding: content, as: UTF8.self)
            self.text = text.replacing(#/<doc:(\w+)>/#) { "`holdfast manual \($0.output.1)`" }
                .trimmingCharacters(in: .newlines)
        }

        /// The paragraph below the title.
        var summary: String {
            let paragraphs = text.split(separator: "\n\n", maxSplits: 2)
            return paragraphs.dropFirst().first.map { String($0.replacing("\n", with: " ")) } ?? ""
        }
    }

    static let articles = [
        Article("Experiments", PackageResources.Experiments_md),
        Article("Flags", PackageResources.Flags_md),
        Article("Profiles", PackageResources.Profiles_md),
        Article("AttributesAndSegments", PackageResources.AttributesAndSegments_md),
        Article("EventsAndResults", PackageResources.EventsAndResults_md),
        Article("SDKs", PackageResources.SDKs_md),
        Article("OptimizelySDK", PackageResources.OptimizelySDK_md),
        Article("OpenFeature", PackageResources.OpenFeature_md),
        Article("ClientLibrary", PackageResources.ClientLibrary_md),
        Article("API", PackageResources.API_md),
        Article("Configuration", PackageResources.Configuration_md),
        Article("Access", PackageResources.Access_md),
        Article("Operations", PackageResources.Operations_md),
        Article("Deployment", PackageResources.Deployment_md),
        Article("Kubernetes", PackageResources.Kubernetes_md),
        Article("Monitoring", PackageResources.Monitoring_md),
        Article("Backups", PackageResources.Backups_md),
        Article("MovingIn", PackageResources.MovingIn_md),
        Article("MovingFromRedis", PackageResources.MovingFromRedis_md),
        Article("MovingFromTables", PackageResources.MovingFromTables_md),
        Article("MovingFromGrowthBook", PackageResources.MovingFromGrowthBook_md),
        Article("Sizing", PackageResources.Sizing_md),
        Article("Performance", PackageResources.Performance_md),
        Article("Limits", PackageResources.Limits_md),
        Article("Threats", PackageResources.Threats_md),
        Article("Proof", PackageResources.Proof_md),
        Article("Architecture", PackageResources.Architecture_md),
        Article("Contributing", PackageResources.Contributing_md),
        Article("Changes", PackageResources.Changes_md),
    ]

    /// The topics with a line on each.
    static var contents: String {
        let width = articles.map(\.topic.count).max() ?? 0
        let lines = articles.map { article in
            "  " + article.topic.padding(toLength: width + 2, withPad: " ", startingAt: 0) + article.summary
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
