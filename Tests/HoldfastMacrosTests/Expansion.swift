import Foundation
import ProcessTestSupport
import Testing

/// What the compiler makes of a source with macros.
///
/// The compiler expands them with the plugin of the build. A test that links the macros instead would be built for the host,
/// and with it every test of the package, a second time.
struct Expansion {
    /// What the macros add, in no order.
    let additions: Set<String>
    /// `LINE:COLUMN: error: MESSAGE` for the macros' errors and warnings, and for the notes that offer a fix.
    let diagnostics: [String]
    private let fixes: Data

    /// Whether a fix that is offered puts in this text.
    func offers(_ text: String) -> Bool { fixes.range(of: Data(text.utf8)) != nil }

    init(of source: String) throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let file = directory.appending(path: "source.swift").path
        let serialized = directory.appending(path: "diagnostics")
        try source.write(toFile: file, atomically: true, encoding: .utf8)
        let compiler = try ChildProcess(
            try #require(Executable.find("swiftc")),
            [
                "-frontend", "-typecheck", "-swift-version", "6", "-module-name", "Source", "-I",
                Executable.built("Modules"),
                "-import-module", "HoldfastClient", "-import-module", "HoldfastMacros", "-load-plugin-executable",
                Executable.built("HoldfastMacrosPlugin-tool#HoldfastMacrosPlugin"), "-dump-macro-expansions",
                "-serialize-diagnostics-path", serialized.path, "-diagnostic-style", "llvm", file,
            ])
        _ = compiler.wait()
        let lines = compiler.errors.all
        var diagnostics: [String] = []
        // Of a declaration that is wrong the compiler has complaints of its own.
        var isOfMacro = false
        for line in lines where line.hasPrefix("\(file):") {
            if !line.contains(": note: ") { isOfMacro = line.contains("(from macro") }
            guard isOfMacro else { continue }
            diagnostics.append(String(line.dropFirst(file.count + 1)).replacing(#/ \(from macro '\w+'\)$/#, with: ""))
        }
        self.diagnostics = diagnostics
        let rule = String(repeating: "-", count: 30)
        var additions: Set<String> = []
        for part in lines.filter({ !$0.hasPrefix("@__swiftmacro") }).split(separator: rule) {
            let text = part.joined(separator: "\n").trimmingCharacters(in: .newlines)
            if !text.isEmpty, !text.contains(": error: "), !text.contains(": warning: ") { additions.insert(text) }
        }
        self.additions = additions
        fixes = try Data(contentsOf: serialized)
    }
}
