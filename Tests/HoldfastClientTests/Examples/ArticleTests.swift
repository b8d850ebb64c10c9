import Foundation
import Testing

/// Each piece of code in the articles is a piece of an example, which compiles and runs; what needs a framework that Linux
/// lacks compiles against a stand-in.
struct ArticleTests {
    private static let here = URL(filePath: #filePath).deletingLastPathComponent()

    @Test(arguments: ["Apps", "Attributes", "Flags", "RemoteValues", "SplitTests", "UserProfiles"])
    func `Code in an article is code of its example`(name: String) throws {
        let articles = Self.here.appending(path: "../../../Sources/HoldfastClient/HoldfastClient.docc")
        let article = try String(contentsOf: articles.appending(path: "\(name).md"), encoding: .utf8)
        let examples = [
            "\(name)Example.swift", "../StandIns/\(name)Example.swift",
            "../../Examples/FirebaseRemoteConfig/FirebaseExample.swift",
        ]
        .compactMap { try? String(contentsOf: Self.here.appending(path: $0), encoding: .utf8) }.map(Self.lines)

        let blocks = article.components(separatedBy: "```swift\n").dropFirst()
            .map { Self.lines($0.components(separatedBy: "```")[0]) }
        #expect(!blocks.isEmpty)
        for block in blocks {
            #expect(
                examples.contains { $0.contains(block) },
                "not in \(name)Example.swift:\n\(block.joined(separator: "\n"))")
        }
    }

    /// The last column names suites, or says `none` and the row says why.
    @Test func `The article Coverage has all points of the descriptions, and the tests that it names exist`() throws {
        let root = Self.here.appending(path: "../../..")
        let article = try String(
            contentsOf: root.appending(path: "Sources/HoldfastClient/HoldfastClient.docc/Coverage.md"), encoding: .utf8)
        var sources = ""
        for folder in [
            "HoldfastClientTests", "HoldfastMacrosTests", "HoldfastOptimizelyTests", "HoldfastObjectiveCTests",
            "Examples",
            "HoldfastAPITests", "IntegrationTests",
        ] {
            let files = FileManager.default.enumerator(
                at: root.appending(path: "Tests/\(folder)"), includingPropertiesForKeys: nil)
            for case let file as URL in files ?? .init() where file.pathExtension == "swift" {
                sources += try String(contentsOf: file, encoding: .utf8)
            }
        }
        let rows = article.split(separator: "\n").filter { $0.hasPrefix("| ") && !$0.hasPrefix("| ---") }.map { row in
            row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        let points = rows.filter { Int($0[0]) != nil }
        #expect(points.compactMap { Int($0[0]) } == Array(1...187))
        #expect(points.allSatisfy { $0.count == 4 })
        // What this library does not have.
        #expect(points.count { $0.last == "none" } == 4)
        for row in rows where row.last != "test" {
            let names = (row.last ?? "").split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) }
            #expect(!names.isEmpty, "\(row)")
            for name in names where name.allSatisfy(\.isLetter) && name != "none" {
                #expect(sources.contains("struct \(name) "), "\(name) in \(row)")
            }
        }
    }

    /// The lines without their indentation, and without empty lines.
    private static func lines(_ text: String) -> [String] {
        text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
    }
}
