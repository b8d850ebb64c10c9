import Foundation
import HoldfastClient
import Testing

// The code of the article SplitTests; ArticleTests compares the two.

enum ButtonColorTest: SplitTest {
    static let identifier = "button_color"

    enum Group: String, CaseIterable, SplitTestGroup {
        case control
        case controlCheck = "control_check"
        case red
        case darkGray = "dark_gray"

        static let testGroups: [Group] = [.control, .controlCheck, .red]
    }
}

extension ButtonColorTest.Group {
    var color: String {
        switch self {
        case .control, .controlCheck: "blue"
        case .red: "red"
        case .darkGray: "dark gray"
        }
    }
}

struct AppAnalytics: SplitTestAnalytics {
    let log: @Sendable (String) -> Void

    func setOnce(value: String, for key: String) {
        log("\(key): \(value)")
    }
}

struct SplitTestsExample {
    /// Removes what a test has stored in the user's defaults.
    private static func forget() {
        for key in UserDefaults.standard.dictionaryRepresentation().keys where key.contains(ButtonColorTest.identifier)
        {
            UserDefaults.standard.removeObject(forKey: key)
        }
    }

    private final class Button {
        var color = ""
    }

    @Test func `A test runs without a server`() async throws {
        let button = Button()
        let folder = try TemporaryDirectory()
        let file = folder.url.appending(path: "groups.json")

        let analytics = AppAnalytics { print($0) }
        let tests = SplitTestService(client: nil, storage: FileSplitTestStorage(file: file), analytics: analytics)

        let test = await tests.fetchSplitTest(ButtonColorTest.self)
        button.color = test.group.color
        test.hit()

        #expect(test.isParticipating)
        if let test = tests.keptSplitTest(ButtonColorTest.self) { button.color = test.group.color }
        #expect(button.color == test.group.color)
    }

    @Test func `A test runs with a server`() async throws {
        Self.forget()
        defer { Self.forget() }
        let (server, directory) = (try await RealServer(), try TemporaryDirectory())
        try await server.request(
            "PUT", "/v1/experiments/button_color", #"{"variations":["control","control_check","red"]}"#)
        let client = try server.client(in: directory)
        try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        let analytics = AppAnalytics { print($0) }

        let tests = SplitTestService(client: client, storage: UserDefaultsSplitTestStorage(), analytics: analytics)
        tests.addUpdateListener { identifiers in
            print("groups changed: \(identifiers.sorted())")
        }
        await tests.refreshAll()

        await tests.fetchSplitTest(ButtonColorTest.self).hit()
        try await client.flush()
        #expect(try await server.exposures().count == 1)
        client.destroy()
    }
}
