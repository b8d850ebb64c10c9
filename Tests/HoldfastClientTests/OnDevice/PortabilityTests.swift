import Foundation
import ProcessTestSupport
import Testing

/// The modules that decide compile for systems without Glibc. Linux has no SDK of Apple, so its C library is a stand-in.
@Suite(.timeLimit(.minutes(5))) struct PortabilityTests {
    private static let sources = URL(filePath: #filePath).deletingLastPathComponent().appending(
        path: "../../../Sources"
    )
    .standardizedFileURL

    /// In the order in which they are compiled.
    private static let modules = ["Chronology", "JSON", "Bucketing"]

    private static func files(_ module: String) throws -> [URL] {
        let files = FileManager.default.enumerator(at: sources.appending(path: module), includingPropertiesForKeys: nil)
        return try #require(files).compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }
    }

    @Test(arguments: modules) func `A module imports nothing that a device lacks`(module: String) throws {
        for file in try Self.files(module) {
            let text = try String(contentsOf: file, encoding: .utf8)
            let imports = text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
                .filter { $0.contains(#/^((public|internal|package) )?import /#) }
                .compactMap { $0.split(separator: " ").last }
            let isConditional = text.contains("#if canImport(Darwin)")
            let allowed = Set(Self.modules + (isConditional ? ["Darwin", "Musl", "Glibc"] : []))
            #expect(allowed.isSuperset(of: imports.map(String.init)), "\(file.lastPathComponent): \(imports)")
            // They need iOS 18 or later.
            for name in ["Synchronization", "UInt128", "Int128", "InlineArray", "Span<"] {
                #expect(!text.contains(name), "\(file.lastPathComponent): \(name)")
            }
        }
    }

    @Test func `The modules compile with another C library`() async throws {
        let modules = try TemporaryDirectory()
        let darwin = modules.url.appending(path: "Darwin.swift")
        try Data(
            "public func memcmp(_ l: UnsafeRawPointer!, _ r: UnsafeRawPointer!, _ n: Int) -> Int32 { 0 }\n".utf8
        ).write(to: darwin)
        try await makeModule("Darwin", of: [darwin], modules)
        for name in Self.modules { try await makeModule(name, of: try Self.files(name), modules) }
    }

    private func makeModule(_ name: String, of files: [URL], _ modules: TemporaryDirectory) async throws {
        let features = [
            "ExistentialAny", "InternalImportsByDefault", "MemberImportVisibility", "NonisolatedNonsendingByDefault",
        ].flatMap { ["-enable-upcoming-feature", $0] }
        let child = try ChildProcess(
            try #require(Executable.find("swiftc")),
            [
                "-swift-version", "6", "-parse-as-library", "-suppress-warnings", "-package-name", "holdfast",
                "-I", modules.url.path, "-emit-module", "-module-name", name, "-emit-module-path",
                modules.path("\(name).swiftmodule"),
            ] + features + files.map(\.path))
        let end = await Program.waiting { child.wait() }
        #expect(end == .exit(0), "\(child.errors.all.joined(separator: "\n"))")
    }
}
