import Foundation
import HoldfastMacros
import Testing

@testable import HoldfastClient

private enum ShopKey: String, CaseIterable, RemoteKey {
    case title = "shop.title"
    case showsPrices = "shop.shows_prices"
    case theme
    case layout

    var valueType: any RemoteValue.Type {
        switch self {
        case .title: Title.self
        case .showsPrices: ShowsPrices.self
        case .theme: Theme.self
        case .layout: Layout.self
        }
    }

    struct Title: StringInitializableRemoteValue {
        static let `default` = Title(name: "Shop")
        let name: String
        init(name: String) { self.name = name }
    }

    @BoolRemoteValue(enabledByDefault: true) enum ShowsPrices { case enabled, disabled }

    @StringRemoteValue enum Theme: String { case plain, dark }

    @BaselineStringRemoteValue struct Layout {
        enum Variant: String { case grid, list, stack }
    }
}

/// Remote values out of the flags of a running server.
@Suite(.timeLimit(.minutes(5))) struct RemoteValuesServerTests {
    private let directory: TemporaryDirectory
    private let server: RealServer

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
        try await server.request("PUT", "/v1/datafile", Self.datafile(revision: "1", title: "Sale"))
    }

    /// `theme` and `shop` are on for all. `layout` is `stack` for Germans by an experiment, and `list_baseline` for all others.
    private static func datafile(revision: String, title: String) -> String {
        func flag(_ id: Int, _ key: String, rollout: String = "", experiments: String = "", variables: String = "")
            -> String
        {
            #"{"id":"\#(id)","key":"\#(key)","rolloutId":"\#(rollout)","experimentIds":[\#(experiments)],"variables":[\#(variables)]}"#
        }
        func experiment(_ id: Int, _ key: String, audience: String = "", variation: String, variables: String = "")
            -> String
        {
            #"""
            {"id":"\#(id)","key":"\#(key)","layerId":"\#(id)","status":"Running","audienceIds":[\#(audience)],"forcedVariations":{},
             "variations":[{"id":"\#(id)1","key":"\#(variation)","featureEnabled":true,"variables":[\#(variables)]}],
             "trafficAllocation":[{"entityId":"\#(id)1","endOfRange":10000}]}
            """#
        }
        let variables =
            #"{"id":"801","key":"title","type":"string","defaultValue":"-"},{"id":"802","key":"shows_prices","type":"boolean","defaultValue":"false"}"#
        return #"""
            {"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"shop","groups":[],"events":[],
             "attributes":[{"id":"501","key":"country"}],"audiences":[],
             "typedAudiences":[{"id":"601","name":"Germans","conditions":["and",{"type":"custom_attribute","match":"exact","name":"country","value":"de"}]}],
             "experiments":[\#(experiment(70, "layout_test", audience: #""601""#, variation: "stack"))],
             "featureFlags":[\#(flag(90, "theme", rollout: "30")),\#(flag(91, "layout", rollout: "31", experiments: #""70""#)),
              \#(flag(93, "shop", rollout: "32", variables: variables))],
             "rollouts":[{"id":"30","experiments":[\#(experiment(301, "301", variation: "dark"))]},
              {"id":"31","experiments":[\#(experiment(311, "311", variation: "list_baseline"))]},
              {"id":"32","experiments":[\#(experiment(321, "321", variation: "on", variables: #"{"id":"801","value":"\#(title)"}"#))]}]}
            """#
    }

    private func client(country: String = "fr") async throws -> HoldfastClient {
        // Whether events wait is a question of exposures here.
        let client = try server.client(in: directory) { $0.reportsEvaluationCounts = false }
        try await client.initialize(
            user: HoldfastUser(id: "ada", attributes: ["country": .string(country)]), timeout: .seconds(60))
        return client
    }

    private func service(_ client: HoldfastClient) -> RemoteConfigService {
        RemoteConfigService(keeper: HoldfastRemoteConfigKeeper(client: client))
    }

    @Test func `Flags and their variables are values`() async throws {
        let client = try await client()
        let service = service(client)
        try await service.fetch()
        let theme: ShopKey.Theme = service.remoteValue(for: ShopKey.theme)
        #expect(theme == .dark)
        #expect(service.remoteValue(for: ShopKey.title, as: ShopKey.Title.self).name == "Sale")
        #expect(service.remoteValue(for: ShopKey.showsPrices, as: ShopKey.ShowsPrices.self) == .disabled)
        #expect(service.states(of: ShopKey.allCases).allSatisfy { $0.source == .remote })
        client.destroy()
    }

    @Test func `Those in the experiment get its value and are exposed once, all others get the baseline`() async throws
    {
        let outside = try await client(country: "fr")
        let layout: ShopKey.Layout = service(outside).remoteValue(for: ShopKey.layout)
        #expect(layout == .init(baseline: true, variant: .list))
        #expect(outside.waitingEvents == 0)
        outside.destroy()

        let inside = try await client(country: "de")
        let service = service(inside)
        service.getValues(for: ShopKey.allCases)
        #expect(inside.waitingEvents == 0)
        for _ in 0..<3 {
            let layout: ShopKey.Layout = service.remoteValue(for: ShopKey.layout)
            #expect(layout == .init(baseline: false, variant: .stack))
        }
        try await inside.flush()
        inside.destroy()
        let exposures = try await server.exposures()
        #expect(exposures.count == 1)
        #expect(exposures.first?["variation_id"] == "701")
    }

    @Test func `A changed flag arrives without a fetch`() async throws {
        let client = try await client()
        let service = service(client)
        var titles = service.remoteValues(for: ShopKey.title, as: ShopKey.Title.self).map(\.name).makeAsyncIterator()
        #expect(await titles.next() == "Sale")
        try await server.request("PUT", "/v1/datafile", Self.datafile(revision: "2", title: "Over"))
        // Titles have no equality, so that each update is a change.
        while let title = await titles.next(), title != "Over" {}
        client.destroy()
    }

    @Test func `Without the server the values of the last run are there, and a fetch fails`() async throws {
        try await client().destroy()
        server.kill()
        let offline = try server.client(in: directory)
        try await offline.initialize(user: HoldfastUser(id: "ada", attributes: ["country": "fr"]))
        let service = service(offline)
        #expect(service.remoteValue(for: ShopKey.title, as: ShopKey.Title.self).name == "Sale")
        await #expect(throws: HoldfastError.self) { try await service.fetch() }
        #expect(service.remoteValue(for: ShopKey.layout, as: ShopKey.Layout.self).variant == .list)
        offline.destroy()
    }
}
