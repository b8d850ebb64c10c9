import Foundation
import HoldfastClient
import Testing

// What the article SplitTests shows; ArticleTests holds one to the other.

enum OnboardingTest: SplitTest {
    static let key = "onboarding"

    enum Group: String, CaseIterable {
        case control
        case controlCheck = "control_check"
        case short
    }
}

struct AppAnalytics: SplitTestAnalytics {
    let log: @Sendable (String) -> Void

    func userWasExposed(_ exposure: SplitTestExposure) async {
        log("\(exposure.testKey): \(exposure.assignment.variationKey)")
    }
}

/// `Defaults` stands for an app's own storage, such as `UserDefaults`.
struct DefaultsStorage: SplitTestStorage {
    let defaults: Defaults

    func value(forKey key: String) async throws -> String? { await defaults.string(forKey: key) }
    func set(_ value: String?, forKey key: String) async throws { await defaults.set(value, forKey: key) }
}

actor Defaults {
    private var values: [String: String] = [:]

    func string(forKey key: String) -> String? { values[key] }
    func set(_ value: String?, forKey key: String) { values[key] = value }
}

struct SplitTestsExample {
    @Test func `A test runs without a server`() async throws {
        let tests = SplitTestService(
            userID: "ann", assigner: RandomSplitTestAssigner(), storage: DefaultsStorage(defaults: Defaults()),
            analytics: AppAnalytics { print($0) })

        switch try await tests.hit(OnboardingTest.self) {
        case .short: print("three pages")
        case .control, .controlCheck, nil: print("seven pages")
        }
        #expect(try await tests.group(of: OnboardingTest.self) != nil)
    }

    @Test func `A test runs with a server`() async throws {
        let (server, directory) = (try RealServer(), try TemporaryDirectory())
        try await server.request("PUT", "/v1/experiments/onboarding", #"{"variations":["control","control_check","short"]}"#)
        let client = try server.client(in: directory)
        let file = directory.url.appending(path: "groups.json")

        let tests = SplitTestService(
            userID: "ada", assigner: HoldfastSplitTestAssigner(client: client), storage: FileSplitTestStorage(file: file),
            exposures: HoldfastExposureReporter(client: client), analytics: AppAnalytics { print($0) })
        #expect(try await tests.hit(OnboardingTest.self) != nil)
        try await client.flush()
        #expect(try await server.exposures().count == 1)
        client.destroy()
    }
}
