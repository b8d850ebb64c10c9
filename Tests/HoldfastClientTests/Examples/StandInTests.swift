import Foundation
import ProcessTestSupport
import Testing

/// Compiles what is for apps only against stand-ins of the frameworks of Apple and others, which the folder `StandIns`
/// declares as their documentation does: the library's own code, and examples in the articles.
@Suite(.timeLimit(.minutes(5))) struct StandInTests {
    private static let standIns = [
        "os", "UIKit", "BackgroundTasks", "SwiftUI", "Combine", "Security", "Optimizely",
    ]
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        .standardizedFileURL
    private static let folder = root.appending(path: "Tests/HoldfastClientTests/StandIns")
    private let modules: TemporaryDirectory

    init() throws {
        modules = try TemporaryDirectory()
    }

    @Test func `The library and the examples in the articles compile for apps`() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for name in Self.standIns {
                group.addTask { try await makeModule(name, of: [Self.folder.appending(path: "\(name).swift")]) }
            }
            try await group.waitForAll()
        }
        for name in ["HoldfastClient", "HoldfastOptimizely", "HoldfastObjectiveC"] {
            try await makeModule(name, of: try Self.files(Self.root.appending(path: "Sources/\(name)")), Self.strict)
        }
        let examples = try Self.files(Self.folder).filter { $0.path.hasSuffix("Example.swift") }
        #expect(examples.count == 3)
        for example in examples { try await compile(["-emit-sil", "-o", "/dev/null", example.path]) }
    }

    /// Those of the package.
    private static let strict = ["ExistentialAny", "InternalImportsByDefault", "MemberImportVisibility"]
        .flatMap { ["-enable-upcoming-feature", $0] }

    private static func files(_ folder: URL) throws -> [URL] {
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        return try #require(files).compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }
    }

    private func makeModule(_ name: String, of files: [URL], _ options: [String] = []) async throws {
        try await compile(
            [
                "-emit-module", "-package-name", "holdfast", "-module-name", name, "-emit-module-path",
                modules.path("\(name).swiftmodule"),
            ] + options
                + files.map(\.path))
    }

    private func compile(_ arguments: [String]) async throws {
        let compiler = try #require(Executable.find("swiftc"))
        let child = try ChildProcess(
            compiler,
            ["-swift-version", "6", "-parse-as-library", "-suppress-warnings", "-I", modules.url.path] + arguments)
        let end = await Program.waiting { child.wait() }
        #expect(end == .exit(0), "\(child.errors.all.joined(separator: "\n"))")
    }
}
