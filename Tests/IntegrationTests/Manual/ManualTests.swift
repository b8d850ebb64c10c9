import APITestSupport
import Foundation
import ProcessTestSupport
import Testing

/// The README and the manual: their examples run as written, and the program prints the articles.
@Suite struct ManualTests {
    @Test(arguments: ExampleSection.all.filter(\.scripts.isEmpty))
    func `The examples of a section print what is written`(section: ExampleSection) throws {
        try expectAsWritten(section)
    }

    @Test(
        .enabled(if: PythonPackages.areInstalled, PythonPackages.missing),
        arguments: ExampleSection.all.filter { !$0.scripts.isEmpty })
    func `The examples of a section with Python print what is written`(section: ExampleSection) throws {
        try expectAsWritten(section)
    }

    @Test func `There are examples in the README and in most articles on use`() {
        let files = Set(ExampleSection.all.map(\.file))
        let shown = ["README.md", "Experiments.md", "Profiles.md", "Access.md", "Operations.md", "GrowthBook.md"]
        #expect(files.isSuperset(of: shown))
        #expect(ExampleSection.all.contains { !$0.scripts.isEmpty })
    }

    /// zsh expands `?` and `*` in an address, and splits no variable into words; other systems lack what GNU adds.
    @Test func `Commands mean the same in other shells and on other systems`() {
        for section in ExampleSection.all {
            for command in section.commands {
                let unquoted = command.text.replacing(#/'[^']*'|"[^"]*"/#, with: "")
                let place = "\(section.file), line \(command.line)"
                #expect(unquoted.firstMatch(of: #/localhost\S*[?&*\[]/#) == nil, "an address without quotes: \(place)")
                #expect(command.text.firstMatch(of: #/ in \$\w/#) == nil, "words of a variable: \(place)")
                #expect(
                    command.text.firstMatch(of: #/paste -sd|sed -i|grep -P|readlink -f|stat -c|date -d/#) == nil,
                    "only with GNU: \(place)")
            }
        }
    }

    @Test func `The README is short, and lists the articles as the landing page does`() throws {
        let readme = try String(contentsOfFile: "\(ExampleSection.root)/README.md", encoding: .utf8)
        #expect(readme.split(separator: "\n", omittingEmptySubsequences: false).count <= 131)
        let landingPage = try String(contentsOfFile: "\(ExampleSection.catalog)/Holdfast.md", encoding: .utf8)
        for part in landingPage.components(separatedBy: "\n## ").dropFirst() {
            let title = part.prefix { $0 != "\n" }
            let line = readme.split(separator: "\n").first { $0.hasPrefix("- **\(title)**: ") } ?? ""
            let listed = line.matches(of: #/holdfast\.docc\/(\w+)\.md/#).map(\.output.1)
            #expect(listed == part.matches(of: #/- \[.*\]\((\w+)\.md\)/#).map(\.output.1), "\(title)")
        }
    }

    @Test func `The article on configuration has every option of the server, with its default`() throws {
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Configuration.md", encoding: .utf8)
        let help = try runAt(Executable.holdfast, ["serve", "--help"])
        let options = help.matches(of: #/\n  (--[a-z-]+)/#).map(\.output.1)
        #expect(options.count > 25)
        for option in options where option != "--version" {
            #expect(article.contains("`\(option)"), "\(option)")
        }
        // Long descriptions are wrapped.
        let lines = help.replacing(#/\n {10,}/#, with: " ").split(separator: "\n")
        let defaults = lines.compactMap { $0.firstMatch(of: #/^ +(--[a-z-]+).*\(default: ([^,)]+)/#)?.output }
        #expect(defaults.count > 25)
        for (_, option, value) in defaults {
            let row = article.split(separator: "\n").first { $0.hasPrefix("| `--") && $0.contains("`\(option)") }
            #expect(row?.contains(value) == true, "\(option): \(value)")
        }
    }

    @Test func `The worked example finds what was put in, and the fault`() throws {
        let example = "\(ExampleSection.root)/Tests/Examples/checkout-experiment"
        let child = try ChildProcess(example, ["--holdfast", Executable.holdfast, "--users", "10000"])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
        #expect(child.output.text.contains("the split is reported as broken"))
    }

    // MARK: In the terminal

    @Test func `The program lists every article in the landing page's order, and prints each as it is`() throws {
        let contents = try runAt(Executable.holdfast, ["manual"])
        let landingPage = try String(contentsOfFile: "\(ExampleSection.catalog)/Holdfast.md", encoding: .utf8)
        let lines = landingPage.matches(of: #/## (\w+)|- \[.*\]\((\w+)\.md\)/#).map {
            $0.output.1 ?? $0.output.2 ?? ""
        }
        #expect(contents.matches(of: #/\n {0,2}([A-Z]\w+)(?=\n|  )/#).map(\.output.1) == lines)
        #expect(lines.count > 40)
        for topic in ExampleSection.articles {
            #expect(lines.contains(Substring(topic)), "\(topic)")
            let article = try String(contentsOfFile: "\(ExampleSection.catalog)/\(topic).md", encoding: .utf8)
            let printed = try runAt(Executable.holdfast, ["manual", topic.lowercased()])
            #expect(printed.firstMatch(of: #/\]\([^)]*\.md/#) == nil, "\(topic)")
            let withoutLinks = printed.replacing(#/`holdfast manual \w+`/#, with: "")
            #expect(withoutLinks.split(separator: "\n").count == article.split(separator: "\n").count, "\(topic)")
        }
        let library = try runAt(Executable.holdfast, ["manual", "client/splittests"])
        #expect(library.hasPrefix("# Split tests\n"))
    }

    @Test func `A link in the terminal is the command that prints the article`() throws {
        let text = try runAt(Executable.holdfast, ["manual", "Bandits"])
        #expect(text.contains("each update in the timeline (`holdfast manual Console`)"))
        let library = try runAt(Executable.holdfast, ["manual", "Client/Flags"])
        #expect(library.contains("The token has the scope `client` (`holdfast manual Client/HoldfastClient`)"))
    }

    @Test func `Words are searched in all articles, and a heading counts most`() throws {
        let found = try runAt(Executable.holdfast, ["manual", "--search", "power CUT"])
        #expect(found.contains("ClientLibrary: Events\n    Events go through one queue on disk."))
        #expect(
            try runAt(Executable.holdfast, ["manual", "--search", "sample ratio"]).split(separator: "\n").count > 4)
        let child = try ChildProcess(Executable.holdfast, ["manual", "--search", "zzz"])
        #expect(child.wait() == .exit(1))
        #expect(child.errors.text == "Error: the manual has no section with all words of 'zzz'")
    }

    @Test func `The beginning of a topic suffices`() throws {
        #expect(try runAt(Executable.holdfast, ["manual", "expe"]).hasPrefix("# Experiments\n"))
        #expect(try runAt(Executable.holdfast, ["manual", "API"]).hasPrefix("# API\n"))
    }

    @Test(arguments: [
        ("experimnts", "did you mean Experiments?"),
        ("a", "choose one of API, Assistants, AttributesAndSegments, Access, Architecture"),
        ("zzz", "choose one of Concepts, FromPlanToWinner, "), ("", "choose one of Concepts, FromPlanToWinner, "),
        ("litestream", "Backups speaks of it, and 'holdfast manual --search' finds more"),
    ])
    func `An unknown topic is an error that names the nearest`(topic: String, hint: String) throws {
        let child = try ChildProcess(Executable.holdfast, ["manual", topic])
        #expect(child.wait() == .exit(1))
        #expect(child.output.all.isEmpty)
        let required = "Error: the topic must be one that 'holdfast manual' lists; got '\(topic)'; "
        #expect(child.errors.text.hasPrefix(required + hint))
    }

    // MARK: Running examples

    private func expectAsWritten(_ section: ExampleSection) throws {
        let outputs = try ExampleRun(section).outputs()
        #expect(outputs.count == section.commands.count, "a command ended the shell: \(outputs.last ?? "")")
        for (command, output) in zip(section.commands, outputs) {
            let written = ExampleRun.normalised(command.output.joined(separator: "\n"))
            let printed = ExampleRun.normalised(output)
            let place = "\(section.file):\(command.line): \(command.text)"
            if written.contains("…") {
                #expect(printed.wholeMatch(of: try Self.pattern(of: written)) != nil, "\(place) printed \(printed)")
            } else {
                #expect(printed == written, "\(place)")
            }
        }
    }

    /// What an output matches whose `…` stand for parts of lines that are left out.
    private static func pattern(of written: String) throws -> Regex<AnyRegexOutput> {
        try Regex(
            written.split(separator: "…", omittingEmptySubsequences: false).map {
                NSRegularExpression.escapedPattern(for: String($0))
            }.joined(separator: ".*"))
    }
}
