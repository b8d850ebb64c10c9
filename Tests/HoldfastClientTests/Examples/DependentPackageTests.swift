import Foundation
import ProcessTestSupport
import Testing

/// A package of somebody else that depends on a version of this one, as the README shows it: SwiftPM refuses a version whose
/// targets have unsafe flags, and fetches nothing else if the traits are turned off.
@Suite(.timeLimit(.minutes(10))) struct DependentPackageTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        .standardizedFileURL
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    /// Fails unless a program ends well.
    private func run(_ name: String, _ arguments: [String]) async throws -> [String] {
        let program = name.contains("/") ? name : Executable.find(name)
        let child = try ChildProcess(
            try #require(program), arguments, environment: ["HOME": directory.path("home")])
        let end = await Program.waiting { child.wait() }
        #expect(
            end == .exit(0),
            "\(name) \(arguments): \((child.output.all + child.errors.all).suffix(40).joined(separator: "\n"))")
        return child.output.all
    }

    private func write(_ text: String, to path: String) throws {
        let file = directory.url.appending(path: path)
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(text.utf8).write(to: file)
    }

    /// The lines of the README that lead to the first flag.
    private static func quickStart() throws -> [Substring] {
        let readme = try String(contentsOf: root.appending(path: "README.md"), encoding: .utf8)
        let blocks = readme.split(separator: "```swift\n").dropFirst().compactMap { $0.split(separator: "```").first }
        let block = try #require(blocks.first { $0.contains("import HoldfastClient") })
        return block.split(separator: "\n").filter { !$0.allSatisfy(\.isWhitespace) }
    }

    @Test func `A package that depends on a version builds, and has its first flag after six lines`() async throws {
        let server = try await RealServer()
        try await server.request("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#)
        let lines = try Self.quickStart()
        #expect(lines.count <= 6, "\(lines)")
        let port = ":\(server.port)"
        #expect(lines.contains { $0.contains(":8080") })

        // A version of this package, as a repository has it.
        let repository = directory.path("holdfast")
        try FileManager.default.createDirectory(atPath: repository, withIntermediateDirectories: true)
        for name in ["Package.swift", "Sources", "Tests", "migrations"] {
            try FileManager.default.copyItem(
                at: Self.root.appending(path: name), to: directory.url.appending(path: "holdfast/\(name)"))
        }
        let author = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false"]
        for arguments in [["init", "--quiet"], ["add", "--all"], author + ["commit", "--quiet", "--message=1.2.3"]] {
            _ = try await run("git", ["-C", repository] + arguments)
        }
        _ = try await run("git", ["-C", repository, "tag", "1.2.3"])

        // Beside the client only the decisions on the device, which have modules of the server.
        let manifest = #"""
            // swift-tools-version: 6.1
            import PackageDescription

            let package = Package(
                name: "app",
                dependencies: [.package(url: "file://\#(repository)", from: "1.0.0", traits: [])],
                targets: [
                    .executableTarget(
                        name: "app",
                        dependencies: [
                            .product(name: "HoldfastClient", package: "holdfast"),
                            .product(name: "HoldfastOnDevice", package: "holdfast"),
                        ])
                ]
            )
            """#
        try write(manifest, to: "app/Package.swift")
        let program = lines.joined(separator: "\n").replacing(":8080", with: port)
        try write("import HoldfastOnDevice\n" + program + "\n", to: "app/Sources/app/main.swift")
        let package = directory.path("app")
        _ = try await run("swift", ["build", "--package-path", package])
        let output = try await run("\(package)/.build/debug/app", [])
        #expect(output == ["control"] || output == ["new"], "\(output)")
        #expect(try await server.request("GET", "/v1/profiles/ann").contains("variation_id"))

        let resolved = try String(
            contentsOf: directory.url.appending(path: "app/Package.resolved"), encoding: .utf8)
        #expect(resolved.contains(#""version" : "1.2.3""#))
        #expect(resolved.components(separatedBy: #""identity""#).count == 2, "more packages than this one: \(resolved)")
    }
}
