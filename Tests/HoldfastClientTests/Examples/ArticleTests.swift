import Foundation
import Testing

/// Each piece of code in the articles is a piece of an example, which compiles and runs.
struct ArticleTests {
    private static let here = URL(filePath: #filePath).deletingLastPathComponent()

    @Test(arguments: ["Attributes", "Flags", "RemoteValues", "SplitTests", "UserProfiles"])
    func `Code in an article is code of its example`(name: String) throws {
        let articles = Self.here.appending(path: "../../../Sources/HoldfastClient/HoldfastClient.docc")
        let article = try String(contentsOf: articles.appending(path: "\(name).md"), encoding: .utf8)
        let example = Self.lines(
            try String(contentsOf: Self.here.appending(path: "\(name)Example.swift"), encoding: .utf8))

        let blocks = article.components(separatedBy: "```swift\n").dropFirst()
            .map { Self.lines($0.components(separatedBy: "```")[0]) }
        #expect(!blocks.isEmpty)
        for block in blocks {
            #expect(example.contains(block), "not in \(name)Example.swift:\n\(block.joined(separator: "\n"))")
        }
    }

    /// The lines without their indentation, and without empty lines.
    private static func lines(_ text: String) -> [String] {
        text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
    }
}
