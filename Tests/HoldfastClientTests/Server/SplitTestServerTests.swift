import Foundation
import Testing

@testable import HoldfastClient

private enum UnknownTest: SplitTest {
    static let key = "unknown"

    enum Group: String, CaseIterable { case control }
}

/// Split tests whose groups a running server gives.
@Suite struct SplitTestServerTests {
    private let directory: TemporaryDirectory
    private let server: RealServer
    private let client: HoldfastClient

    init() async throws {
        directory = try TemporaryDirectory()
        server = try RealServer()
        try await server.request("PUT", "/v1/experiments/paywall", #"{"id":"70","variations":["control","control_check","annual_first"]}"#)
        client = try server.client(in: directory)
    }

    private func service(_ userID: String, storage: any SplitTestStorage = InMemorySplitTestStorage()) -> SplitTestService {
        SplitTestService(
            userID: userID, assigner: HoldfastSplitTestAssigner(client: client), storage: storage,
            exposures: HoldfastExposureReporter(client: client))
    }

    @Test func `The server's groups are all given, and are the same on every device`() async throws {
        var groups: Set<PaywallTest.Group?> = []
        for number in 0..<40 {
            let first = try await service("user\(number)").group(of: PaywallTest.self)
            #expect(try await service("user\(number)").group(of: PaywallTest.self) == first)
            groups.insert(first)
        }
        #expect(groups == Set(PaywallTest.Group.allCases))
        #expect(try await server.exposures().isEmpty)
        client.destroy()
    }

    @Test func `The exposure is reported at the hit, once over all runs and devices`() async throws {
        let storage = InMemorySplitTestStorage()
        for _ in 0..<2 { _ = try await service("ada", storage: storage).hit(PaywallTest.self) }
        #expect(client.waitingEvents == 1)
        _ = try await service("ada").hit(PaywallTest.self)
        try await client.flush()
        #expect(try await server.exposures().count == 1)
        client.destroy()
    }

    @Test func `An override is seen by a refresh, and a kept group needs no server`() async throws {
        let storage = FileSplitTestStorage(file: directory.url.appending(path: "groups.json"))
        let tests = service("ada", storage: storage)
        let group = try #require(try await tests.hit(PaywallTest.self))
        let other = try #require(PaywallTest.Group.allCases.first { $0 != group })
        try await server.request("PUT", "/v1/profiles/ada/experiments/70", #"{"variation_key":"\#(other.rawValue)"}"#)
        #expect(try await tests.group(of: PaywallTest.self) == group)
        #expect(try await tests.refresh(PaywallTest.self) == other)

        server.kill()
        #expect(try await service("ada", storage: storage).hit(PaywallTest.self) == other)
        do throws(SplitTestError) {
            _ = try await service("bob").hit(PaywallTest.self)
            Issue.record("no error")
        } catch {
            guard case .unavailable = error else {
                Issue.record("\(error)")
                return
            }
        }
        client.destroy()
    }

    @Test func `A user outside the traffic has no group, and an unknown experiment is an error`() async throws {
        try await server.request("PUT", "/v1/experiments/paywall", #"{"status":"Paused"}"#)
        #expect(try await service("ada").hit(PaywallTest.self) == nil)
        #expect(client.waitingEvents == 0)
        do throws(SplitTestError) {
            _ = try await service("ada").group(of: UnknownTest.self)
            Issue.record("no error")
        } catch {
            guard case .refused(testKey: "unknown", reason: _) = error else {
                Issue.record("\(error)")
                return
            }
        }
        client.destroy()
    }
}
