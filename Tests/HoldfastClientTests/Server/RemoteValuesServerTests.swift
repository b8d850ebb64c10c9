import Foundation
import Testing

@testable import HoldfastClient

@RemoteValuesNamespace("shop")
private struct ShopValues {
    @StringRemoteValue var title = "Shop"
    @BoolRemoteValue(enabledByDefault: true) var showsPrices: Bool
}

extension RemoteValues {
    @StringRemoteValue fileprivate var theme = "plain"
    @BaselineStringRemoteValue fileprivate var layout = "grid"
}

/// Remote values out of the flags of a running server.
@Suite(.timeLimit(.minutes(5))) struct RemoteValuesServerTests {
    private let directory: TemporaryDirectory
    private let server: RealServer

    init() async throws {
        directory = try TemporaryDirectory()
        server = try RealServer()
        try await server.request("PUT", "/v1/datafile", Self.datafile(revision: "1", title: "Sale"))
    }

    /// `theme` and `shop` are on for all. `layout` is under test with Germans only; `layout_baseline` is for all.
    private static func datafile(revision: String, title: String) -> String {
        func flag(_ id: Int, _ key: String, rollout: String = "", experiments: String = "", variables: String = "") -> String {
            #"{"id":"\#(id)","key":"\#(key)","rolloutId":"\#(rollout)","experimentIds":[\#(experiments)],"variables":[\#(variables)]}"#
        }
        func experiment(_ id: Int, _ key: String, audience: String = "", variation: String, variables: String = "") -> String {
            #"""
            {"id":"\#(id)","key":"\#(key)","layerId":"\#(id)","status":"Running","audienceIds":[\#(audience)],"forcedVariations":{},
             "variations":[{"id":"\#(id)1","key":"\#(variation)","featureEnabled":true,"variables":[\#(variables)]}],
             "trafficAllocation":[{"entityId":"\#(id)1","endOfRange":10000}]}
            """#
        }
        let variables = #"{"id":"801","key":"title","type":"string","defaultValue":"-"},{"id":"802","key":"shows_prices","type":"boolean","defaultValue":"false"}"#
        return #"""
            {"version":"4","accountId":"1","projectId":"1","revision":"\#(revision)","sdkKey":"shop","groups":[],"events":[],
             "attributes":[{"id":"501","key":"country"}],"audiences":[],
             "typedAudiences":[{"id":"601","name":"Germans","conditions":["and",{"type":"custom_attribute","match":"exact","name":"country","value":"de"}]}],
             "experiments":[\#(experiment(70, "layout_test", audience: #""601""#, variation: "stack"))],
             "featureFlags":[\#(flag(90, "theme", rollout: "30")),\#(flag(91, "layout", experiments: #""70""#)),
              \#(flag(92, "layout_baseline", rollout: "31")),\#(flag(93, "shop", rollout: "32", variables: variables))],
             "rollouts":[{"id":"30","experiments":[\#(experiment(301, "301", variation: "dark"))]},
              {"id":"31","experiments":[\#(experiment(311, "311", variation: "list"))]},
              {"id":"32","experiments":[\#(experiment(321, "321", variation: "on", variables: #"{"id":"801","value":"\#(title)"}"#))]}]}
            """#
    }

    private func client(country: String = "fr") async throws -> HoldfastClient {
        let client = try server.client(in: directory)
        try await client.initialize(user: HoldfastUser(id: "ada", attributes: ["country": .string(country)]), timeout: .seconds(60))
        return client
    }

    @Test func `Flags and their variables are values`() async throws {
        let client = try await client()
        let service = RemoteValueService(keeper: HoldfastValueKeeper(client: client))
        #expect(service.values.theme == "dark")
        let shop = service.getValues(for: ShopValues.self)
        #expect(shop.title == "Sale")
        #expect(!shop.showsPrices)
        #expect(try await service.fetch().theme == "dark")
        client.destroy()
    }

    @Test func `Those in the experiment get the value under test and are exposed once, all others get its baseline`() async throws {
        let outside = try await client(country: "fr")
        let values = RemoteValueService(keeper: HoldfastValueKeeper(client: outside)).values
        #expect(values.layout == "list")
        #expect(outside.waitingEvents == 0)
        outside.destroy()

        let inside = try await client(country: "de")
        let service = RemoteValueService(keeper: HoldfastValueKeeper(client: inside))
        #expect(service.values.layoutBaseline == "list")
        #expect(inside.waitingEvents == 0)
        for _ in 0..<3 { #expect(service.values.layout == "stack") }
        try await inside.flush()
        inside.destroy()
        let exposures = try await server.exposures()
        #expect(exposures.count == 1)
        #expect(exposures.first?["variation_id"] == "701")
    }

    @Test func `A changed flag comes without being asked for`() async throws {
        let client = try await client()
        let service = RemoteValueService(keeper: HoldfastValueKeeper(client: client))
        var changes = service.changes().makeAsyncIterator()
        try await server.request("PUT", "/v1/datafile", Self.datafile(revision: "2", title: "Over"))
        let change = try #require(await changes.next())
        #expect(change.keys == ["shop.title"])
        #expect(ShopValues(change.values).title == "Over")
        client.destroy()
    }

    @Test func `Without the server the values of the last run are there, and a fetch says so`() async throws {
        try await client().destroy()
        server.kill()
        let offline = try server.client(in: directory)
        try await offline.initialize(user: HoldfastUser(id: "ada", attributes: ["country": "fr"]))
        let service = RemoteValueService(keeper: HoldfastValueKeeper(client: offline))
        #expect(service.getValues(for: ShopValues.self).title == "Sale")
        await #expect {
            try await service.fetch()
        } throws: { error in
            if case .unavailable? = error as? RemoteValueError { true } else { false }
        }
        #expect(service.values.layout == "list")
        offline.destroy()
    }
}
