import Foundation
import Testing

/// A section of README.md or of an article of the manual, with what its console blocks show.
struct ExampleSection: Sendable, CustomTestStringConvertible {
    /// A command behind `$ `, with the lines behind `> ` that go on with it, and what it is to print.
    struct Command: Sendable {
        let line: Int
        var text: String
        var output: [String] = []
    }

    let file: String
    let title: String
    var commands: [Command] = []
    /// Python and JavaScript blocks that begin with a comment that is the name of a file, by that name.
    var scripts: [String: String] = [:]

    var testDescription: String { "\(file): \(title)" }

    /// Sections with console blocks, of all documents.
    static let all: [ExampleSection] = documents.flatMap { path in
        (try? String(contentsOfFile: path, encoding: .utf8)).map { sections(of: $0, in: path) } ?? []
    }

    static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path
    static let catalog = "\(root)/Sources/holdfast/holdfast.docc"

    /// The articles of the catalog, without the landing page.
    static let articles: [String] = ((try? FileManager.default.contentsOfDirectory(atPath: catalog)) ?? [])
        .filter { $0.hasSuffix(".md") && $0 != "Holdfast.md" }.map { String($0.dropLast(3)) }.sorted()

    private static let documents = ["\(root)/README.md"] + articles.map { "\(catalog)/\($0).md" }

    private static func sections(of text: String, in path: String) -> [ExampleSection] {
        let file = URL(fileURLWithPath: path).lastPathComponent
        var sections = [ExampleSection(file: file, title: "")]
        var block: (language: Substring, lines: [String])?
        for (index, line) in text.components(separatedBy: "\n").enumerated() {
            let last = sections.count - 1
            if line.hasPrefix("```") {
                let marks: [Substring: String] = ["python": "# ", "javascript": "// "]
                if let (language, lines) = block, let mark = marks[language], let name = lines.first,
                    name.hasPrefix(mark)
                {
                    let name = name.dropFirst(mark.count)
                    sections[last].scripts[String(name)] = lines.joined(separator: "\n") + "\n"
                }
                block = block == nil ? (line.dropFirst(3), []) : nil
            } else if block != nil {
                block?.lines.append(line)
                if block?.language == "console" { sections[last].read(line, number: index + 1) }
            } else if line.hasPrefix("## ") {
                sections.append(ExampleSection(file: file, title: String(line.dropFirst(3))))
            }
        }
        return sections.filter { !$0.commands.isEmpty }
    }

    private mutating func read(_ line: String, number: Int) {
        if line.hasPrefix("$ ") {
            commands.append(Command(line: number, text: String(line.dropFirst(2))))
        } else if let last = commands.indices.last {
            if line.hasPrefix("> "), commands[last].output.isEmpty {
                commands[last].text += "\n" + line.dropFirst(2)
            } else {
                commands[last].output.append(line)
            }
        }
    }
}
