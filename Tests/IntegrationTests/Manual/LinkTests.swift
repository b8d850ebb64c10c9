import Foundation
import Testing

/// The links of README and articles, as a code host follows them: relative paths, and headings as anchors.
@Suite struct LinkTests {
    private static let clientCatalog = "\(ExampleSection.root)/Sources/HoldfastClient/HoldfastClient.docc"

    private static let documents: [String] = {
        let catalogs = [ExampleSection.catalog, clientCatalog].flatMap { folder in
            ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).map { "\(folder)/\($0)" }
        }
        return (["\(ExampleSection.root)/README.md"] + catalogs.sorted()).filter { $0.hasSuffix(".md") }
    }()

    @Test(arguments: documents)
    func `Each link leads to a file, and to a heading in it`(path: String) throws {
        let text = try Self.prose(of: path)
        #expect(!text.contains("<doc:"), "a code host cannot follow it")
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent()
        for link in text.matches(of: #/\]\(([^)\s]*)\)/#).map(\.output.1) where !link.hasPrefix("https://") {
            let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
            let target = parts[0].isEmpty ? path : folder.appending(path: String(parts[0])).standardized.path
            #expect(target.hasPrefix(ExampleSection.root + "/"), "\(link) leaves the repository")
            #expect(FileManager.default.fileExists(atPath: target), "\(link)")
            if parts.count > 1 {
                #expect(try Self.anchors(of: target).contains(String(parts[1])), "\(link)")
            }
        }
    }

    @Test func `Every article of the client library is reached from the manual`() throws {
        let entry = try String(contentsOfFile: "\(ExampleSection.catalog)/ClientLibrary.md", encoding: .utf8)
        for path in Self.documents where path.hasPrefix(Self.clientCatalog) {
            let name = URL(fileURLWithPath: path).lastPathComponent
            #expect(entry.contains("(../../HoldfastClient/HoldfastClient.docc/\(name))"), "\(name)")
        }
    }

    /// The text without code.
    private static func prose(of path: String) throws -> String {
        var isCode = false
        let lines = try String(contentsOfFile: path, encoding: .utf8).components(separatedBy: "\n").filter { line in
            let isFence = line.trimmingCharacters(in: .whitespaces).hasPrefix("```")
            if isFence { isCode.toggle() }
            return !isCode && !isFence
        }
        return lines.joined(separator: "\n").replacing(#/`[^`]*`/#, with: "")
    }

    /// The anchors that GitHub makes of headings.
    private static func anchors(of path: String) throws -> Set<String> {
        var isCode = false
        var anchors: Set<String> = []
        for line in try String(contentsOfFile: path, encoding: .utf8).components(separatedBy: "\n") {
            if line.hasPrefix("```") { isCode.toggle() }
            guard !isCode, line.hasPrefix("#") else { continue }
            let heading = line.drop { $0 == "#" || $0 == " " }.lowercased()
            let kept = heading.filter { $0.isLetter || $0.isNumber || $0 == "-" || $0 == "_" || $0 == " " }
            anchors.insert(kept.replacingOccurrences(of: " ", with: "-"))
        }
        return anchors
    }
}
