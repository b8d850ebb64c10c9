import HoldfastClient
import Testing

/// Which of the values there may be counts.
struct RemoteValueOrderTests {
    @Test(arguments: [
        (debug: "d", custom: "c", fetched: "f", result: "d"),
        (debug: nil, custom: "c", fetched: "f", result: "c"),
        (debug: nil, custom: nil, fetched: "f", result: "f"),
        (debug: nil, custom: nil, fetched: nil, result: "News"),
        (debug: "d", custom: nil, fetched: nil, result: "d"),
        (debug: nil, custom: "c", fetched: nil, result: "c"),
    ] as [(debug: String?, custom: String?, fetched: String?, result: String)])
    func debugThenCustomThenFetchedThenDefault(debug: String?, custom: String?, fetched: String?, result: String) {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(fetched.map { ["feed.title": FetchedValue(.string($0))] } ?? [:]))
        service.setDebugValue(debug, for: FeedValues.$title)
        service.setCustomValue(custom, for: FeedValues.$title)

        #expect(service.remoteValue(for: FeedValues.$title) == result)
        #expect(service.getValues(for: FeedValues.self).title == result)
        #expect(service.debugValue(for: FeedValues.$title) == debug)
        #expect(service.customValue(for: FeedValues.$title) == custom)
    }

    @Test func valuesTakenBackUncoverThoseBelow() {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["feed.title": FetchedValue(.string("fetched"))]))
        service.setDebugValue("debug", for: FeedValues.$title)
        service.setCustomValue("custom", for: FeedValues.$title)

        service.removeDebugValues()
        #expect(service.remoteValue(for: FeedValues.$title) == "custom")
        service.setCustomValue(nil, for: FeedValues.$title)
        #expect(service.remoteValue(for: FeedValues.$title) == "fetched")
    }

    @Test(arguments: [
        (test: nil, baseline: nil, result: .grid, baselineResult: .grid),
        (test: nil, baseline: "list", result: .list, baselineResult: .list),
        (test: "stack", baseline: nil, result: .stack, baselineResult: .grid),
        (test: "stack", baseline: "list", result: .stack, baselineResult: .list),
        (test: "circle", baseline: "list", result: .list, baselineResult: .list),
        (test: "circle", baseline: "oval", result: .grid, baselineResult: .grid),
    ] as [(test: String?, baseline: String?, result: Layout, baselineResult: Layout)])
    func aBaselineHoldsForThoseOutsideTheExperiment(test: String?, baseline: String?, result: Layout, baselineResult: Layout) {
        var fetched: [RemoteKey: FetchedValue] = [:]
        fetched["feed.layout"] = test.map { FetchedValue(.string($0)) }
        fetched["feed.layout_baseline"] = baseline.map { FetchedValue(.string($0)) }
        let feed = RemoteValueService(keeper: InMemoryValueKeeper(fetched)).getValues(for: FeedValues.self)

        #expect(feed.layout == result)
        #expect(feed.layoutBaseline == baselineResult)
    }

    @Test func aDebugValueOfTheBaselineDoesNotHideTheTest() {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["feed.sound": FetchedValue(.bool(false))]))
        service.setDebugValue(true, for: FeedValues.$playsSound.baseline)

        let feed = service.getValues(for: FeedValues.self)
        #expect(!feed.playsSound)
        #expect(feed.playsSoundBaseline)
    }

    @Test(arguments: [
        (.string("on"), "on", nil), (.bool(true), nil, true), (.number(1), nil, nil),
        (.variation(key: "big", enabled: true), "big", true), (.variation(key: "off", enabled: false), "off", false),
    ] as [(RemoteRawValue, String?, Bool?)])
    func aValueHasItsTypeOrNone(raw: RemoteRawValue, string: String?, bool: Bool?) {
        #expect(String(raw) == string)
        #expect(Bool(raw) == bool)
    }

    @Test func keysAreTheSameOnlyIfTheirBytesAre() {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["caf\u{E9}": FetchedValue(.string("found"))]))
        #expect(service.remoteValue(for: RemoteValue("caf\u{E9}", default: "default")) == "found")
        #expect(service.remoteValue(for: RemoteValue("cafe\u{301}", default: "default")) == "default")
    }

    @Test func rawValuesAreThoseThatThereAre() {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["feed.title": FetchedValue(.string("fetched"))]))
        service.setDebugValue(true, for: FeedValues.$showsStories)

        #expect(
            service.getValues(for: FeedValues.remoteKeys)
                == ["feed.title": .string("fetched"), "feed.shows_stories": .bool(true)])
    }
}
