import HoldfastClient
import Testing

// What the article RemoteValues shows; ArticleTests holds one to the other.

@RemoteValuesNamespace("checkout")
struct CheckoutValues {
    /// "checkout.button_title"
    @StringRemoteValue var buttonTitle = "Buy"

    /// "checkout.shows_coupons"
    @BoolRemoteValue(enabledByDefault: false) var showsCoupons: Bool

    /// "checkout.layout" and "checkout.layout_baseline"
    @BaselineStringRemoteValue var layout: CheckoutLayout = .onePage

    /// "checkout.express" and "checkout.express_baseline"
    @BaselineBoolRemoteValue(enabledByDefault: true, key: "express") var offersExpress: Bool
}

enum CheckoutLayout: String, RemoteValueType {
    case onePage = "one_page"
    case steps
}

extension RemoteValues {
    @StringRemoteValue var supportAddress = "help@example.com"
}

struct CheckoutHooks: RemoteValueHooks {
    let log: @Sendable (String) -> Void

    func missingValue(for key: RemoteKey) -> RemoteRawValue? {
        log("no value for \(key)")
        return nil
    }

    func incorrectValue(_ raw: RemoteRawValue, for key: RemoteKey, expected: any RemoteValueType.Type) -> RemoteRawValue? {
        log("\(key) is \(raw), not one of \(expected)")
        return nil
    }
}

@Suite(.timeLimit(.minutes(1)))
struct RemoteValuesExample {
    @Test func `Values are read, set and followed`() async throws {
        let keeper = InMemoryValueKeeper(["checkout.layout_baseline": FetchedValue(.string("steps"))])
        let service = RemoteValueService(keeper: keeper, hooks: CheckoutHooks { print($0) })
        try await service.fetch()

        let checkout = service.getValues(for: CheckoutValues.self)
        #expect(checkout.buttonTitle == "Buy")
        #expect(checkout.layout == .steps)
        #expect(checkout.layoutBaseline == .steps)

        let title = service.remoteValue(for: CheckoutValues.$buttonTitle)
        #expect(title == "Buy")
        #expect(service.values.supportAddress == "help@example.com")

        service.setDebugValue(.onePage, for: CheckoutValues.$layout)
        #expect(service.remoteValue(for: CheckoutValues.$layout) == .onePage)
        service.removeDebugValues()

        let titles = AsyncStream.makeStream(of: String.self)
        let following = Task { await follow(service) { titles.continuation.yield($0.buttonTitle) } }
        defer { following.cancel() }
        for await title in titles.stream where title == "Buy" { break }
        service.setCustomValue("Buy now", for: CheckoutValues.$buttonTitle)
        for await title in titles.stream where title == "Buy now" { break }
    }

    @Test func `Values come out of flags`() async throws {
        let stub = try Client()
        let client = stub.client
        try await client.initialize(user: HoldfastUser(id: "ada"))
        let service = RemoteValueService(keeper: HoldfastValueKeeper(client: client), hooks: CheckoutHooks { print($0) })
        #expect(service.remoteValue(for: RemoteValue("checkout.title", default: "")) == "Pay")
    }

    private func follow(_ service: RemoteValueService, show: (CheckoutValues) -> Void) async {
        let changes = service.changes()
        show(service.getValues(for: CheckoutValues.self))
        for await change in changes where change.concerns(CheckoutValues.self) {
            show(CheckoutValues(change.values))
        }
    }
}
