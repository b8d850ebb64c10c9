import Foundation
import HoldfastClient
import Observation
import ProcessTestSupport
import Testing

/// `holdfast generate swift`: what it writes is a part of these tests, so it compiles.
@Suite struct GeneratedFlagsTests {
    private static let here = URL(filePath: #filePath).deletingLastPathComponent()

    private func generate(_ definitions: String) throws -> ChildProcess {
        let child = try ChildProcess(
            Executable.holdfast, ["generate", "swift", "-f", definitions, "--type", "GeneratedFlags"])
        _ = child.wait()
        return child
    }

    /// To write it anew: `holdfast generate swift -f definitions.yaml --type GeneratedFlags -o GeneratedFlags.swift`.
    @Test func `The generated file is what the command writes`() throws {
        let child = try generate(Self.here.appending(path: "definitions.yaml").path)
        let written = try String(contentsOf: Self.here.appending(path: "GeneratedFlags.swift"), encoding: .utf8)
        #expect(child.output.text == written.trimmingCharacters(in: .newlines), "\(child.errors.text)")
    }

    @Test func `Each flag has its default before the server is reached`() throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let endpoint = try #require(URL(string: "http://127.0.0.1:9"))
        let client = try HoldfastClient(
            configuration: HoldfastConfiguration(endpoint: endpoint, token: "t", directory: directory))
        let flags = GeneratedFlags(client)
        #expect(flags.banner == false && flags._3dView == true && flags.`default` == "Hi \"you\" \\ \t")
        #expect(flags.columns == .max && flags.rate == 2 && flags.list == [])
        #expect(flags.theme == ["colors": ["#000", 1.5, true, nil, [:]], "on": [:]])
        #expect(flags.newCheckout == .control && flags.checkout2 == .a)
        #expect(GeneratedFlags.Key.allCases.map(\.rawValue).contains("new-checkout"))
        #expect(GeneratedFlags.Key.allCases.count == 9)
        #expect(GeneratedFlags.NewCheckoutVariation.oneStep.rawValue == "one_step")
    }

    @Test func `The accessors are observed`() throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let endpoint = try #require(URL(string: "http://127.0.0.1:9"))
        let client = try HoldfastClient(
            configuration: HoldfastConfiguration(endpoint: endpoint, token: "t", directory: directory))
        try client.start(user: HoldfastUser(id: "ada"))
        let flags = GeneratedFlags(FlagModel(client: client))
        let changed = DispatchSemaphore(value: 0)
        let before = withObservationTracking {
            flags.banner
        } onChange: {
            changed.signal()
        }
        client.setOverride(true, flagKey: "columns")
        client.setOverride(true, flagKey: "banner")
        #expect(!before)
        changed.wait()
        #expect(flags.banner)
        client.destroy()
    }

    @Test func `Two keys with one name are an error that names both`() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString).yaml")
        defer { try? FileManager.default.removeItem(at: file) }
        let flags = ["a-b", "a_b"].map { "  - {key: \($0), type: boolean}\n" }
        try "flags:\n\(flags.joined())".write(to: file, atomically: true, encoding: .utf8)
        let child = try generate(file.path)
        #expect(child.errors.text.contains("'a-b' and 'a_b' are both aB"), "\(child.errors.text)")
    }
}
