import ArgumentParser
import Bucketing
import FoundationEssentials
import HoldfastCore
import JSON

/// Finds flags and experiments that code no longer needs, whose keys do not occur in code, or that nobody uses.
struct StaleCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stale",
        abstract:
            "Finds flags and experiments that are decided for everybody and still in code, and those that nobody uses.",
        discussion:
            "A key counts where it stands in quotation marks. The exit status is 0 if nothing is found, otherwise 2.")

    @Option(help: .init("A directory with code; may be repeated.", valueName: "dir"))
    var code: [String] = []

    @Option(
        help: .init(
            "Also find flags that a server knows and nobody has used for this number of days, such as 30d.",
            valueName: "days"))
    var unused: String?

    @OptionGroup var source: DefinitionSourceOptions

    func run() throws {
        guard !code.isEmpty || unused != nil else { throw Failure("--code or --unused is required; there is neither") }
        let definitions = try source.definitions()
        let unusedFlags = try unused.map { try source.unusedFlags(for: $0) } ?? []
        // An experiment that is a rule of a flag has no variations of its own, and its key cannot be evaluated.
        let elements = definitions[.flags] + definitions[.experiments].filter { $0.object["variations"] != nil }
        // If a flag and an experiment have one key, the first that is decided counts.
        let decided = Dictionary(
            elements.map { ($0.key.string, Self.decision(of: $0.object)) }, uniquingKeysWith: { $0 ?? $1 })
        var search = CodeSearch(Set(decided.keys))
        for directory in code { try search.read(directory) }
        var hasFindings = false
        for (key, decision) in decided.sorted(by: { $0.key < $1.key }) {
            let places = search.places[key] ?? []
            let isUnused = unusedFlags.contains(key)
            for finding in findings(about: key, decision, isUnused: isUnused, isInCode: !places.isEmpty) {
                print(finding)
                for place in places { print("    \(place)") }
                hasFindings = true
            }
        }
        if hasFindings { throw ExitCode(2) }
    }

    /// Returns what is stale about a flag or an experiment.
    private func findings(
        about key: String, _ decision: FinalDecision?, isUnused: Bool, isInCode: Bool
    ) -> [String] {
        var findings: [String] = []
        if let unused, isUnused { findings.append("\(key): nobody has used it for \(unused)") }
        if code.isEmpty { return findings }
        if let decision, isInCode {
            findings.append("\(key): \(decision.text)")
        } else if !isInCode, decision?.isArchived != true {
            findings.append("\(key): no code names it")
        }
        return findings
    }

    /// What all users get from a flag or experiment that code need no longer evaluate.
    private struct FinalDecision {
        /// The decision, for people.
        let text: String
        /// Archived elements need not occur in code.
        var isArchived = false
    }

    /// Returns what all users get; `nil` if they may get different variations.
    private static func decision(of object: JSONObject) -> FinalDecision? {
        switch object["status"]?.string {
        case "archived": return FinalDecision(text: "archived", isArchived: true)
        case "concluded":
            let winner = object["conclusion"]?.object?["winner"]?.string
            return FinalDecision(
                text: winner.map { "concluded, everybody gets '\($0)'" } ?? "concluded without a winner")
        default: break
        }
        // Only flags have a type.
        guard object["type"] != nil else { return nil }
        if object["enabled"] == false { return FinalDecision(text: "off") }
        guard object["rules"] != nil else {
            return FinalDecision(text: "without rules, everybody gets '\(object["otherwise"]?.string ?? "")'")
        }
        return onlyVariation(of: object).map { FinalDecision(text: "everybody gets '\($0)'") }
    }

    /// Returns the variation that all reachable rules of a flag deliver; `nil` if there are several variations or an
    /// experiment.
    private static func onlyVariation(of flag: JSONObject) -> String? {
        var variations: Set<String> = []
        for rule in (flag["rules"]?.array ?? []).map(\.object) {
            guard let variation = rule?["variation"]?.string else { return nil }
            variations.insert(variation)
            // A rule for all users is the last one that is reached.
            let isForAll = rule?["audience"] == nil && rule?["traffic"]?.double == 100
            if isForAll { return variations.count == 1 ? variation : nil }
        }
        if let otherwise = flag["otherwise"]?.string { variations.insert(otherwise) }
        return variations.count == 1 ? variations.first : nil
    }
}

/// Looks for keys in the files of directories with code.
private struct CodeSearch {
    private let keys: Set<String>
    /// The places of each key as `file:line`, in the order of the files.
    private(set) var places: [String: [String]] = [:]
    /// The number of bytes at the beginning of a file that are searched. Hardly any source file is longer.
    private static let largestFile = 1 << 20
    /// Folders with dependencies or generated code, which are skipped.
    private static let skipped: Set<String> = [
        "node_modules", "vendor", "Pods", "DerivedData", "build", "dist", "target",
    ]
    private static let quotationMarks: [UInt8] = Array("\"'`".utf8)

    init(_ keys: Set<String>) {
        self.keys = keys
    }

    /// Reads a directory recursively, in the order of the names.
    mutating func read(_ directory: String) throws {
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: directory)
        } catch {
            throw Failure("the directory \(directory) cannot be read: \(error)")
        }
        for name in names.sorted() where !name.hasPrefix(".") && !Self.skipped.contains(name) {
            let path = directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
            // Symbolic links are skipped, because they may form a cycle.
            if (try? FileManager.default.destinationOfSymbolicLink(atPath: path)) != nil { continue }
            // A file with a NUL is not a text, and is not searched.
            if FileManager.default.directoryExists(atPath: path) {
                try read(path)
            } else if let content = try? OpenFile(path: path).read(upToCount: Self.largestFile), !content.contains(0) {
                find(in: content, of: path)
            }
        }
    }

    /// Looks for keys that stand in quotation marks.
    private mutating func find(in content: [UInt8], of path: String) {
        let lines = content.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            for mark in Self.quotationMarks {
                // The text between two quotation marks is a string literal, or the code between two literals. Such code
                // cannot equal a key.
                for text in line.split(separator: mark, omittingEmptySubsequences: false).dropFirst().dropLast() {
                    let key = String(decoding: text, as: UTF8.self)
                    let place = "\(path):\(index + 1)"
                    if keys.contains(key), places[key]?.last != place { places[key, default: []].append(place) }
                }
            }
        }
    }
}
