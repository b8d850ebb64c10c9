import HoldfastClient
import Testing

struct RemoteValueHooksTests {
    private let group = ExperimentalGroup(experimentID: "1", variationID: "2", variationKey: "bold")

    @Test func aMissingValueIsToldAtEachRead() {
        let hooks = RecordingHooks()
        let service = RemoteValueService(keeper: InMemoryValueKeeper(), hooks: hooks)

        #expect(service.remoteValue(for: FeedValues.$title) == "News")
        #expect(hooks.takeNotes() == ["missing feed.title"])
        #expect(service.getValues(for: FeedValues.self).title == "News")
        #expect(hooks.takeNotes() == ["missing feed.title"])
    }

    @Test func aValueUnderTestIsMissingOnlyWithItsBaseline() {
        let hooks = RecordingHooks()
        let keeper = InMemoryValueKeeper(["feed.sound_baseline": FetchedValue(.bool(false))])
        let service = RemoteValueService(keeper: keeper, hooks: hooks)

        #expect(!service.remoteValue(for: FeedValues.$playsSound))
        #expect(hooks.takeNotes() == [])
        #expect(service.remoteValue(for: FeedValues.$layout) == .grid)
        #expect(hooks.takeNotes() == ["missing feed.layout_baseline"])
    }

    @Test func anIncorrectValueIsToldAndPassedOver() {
        let hooks = RecordingHooks()
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["feed.layout": FetchedValue(.string("circle"))]), hooks: hooks)
        service.setCustomValue("oval", for: RemoteValue("feed.layout", default: ""))

        #expect(service.remoteValue(for: FeedValues.$layout) == .grid)
        #expect(
            hooks.takeNotes() == [
                #"incorrect feed.layout: string("oval") is no Layout"#, #"incorrect feed.layout: string("circle") is no Layout"#,
            ])
    }

    @Test func aHookMayGiveTheValueToUse() {
        let hooks = RecordingHooks(replacement: .string("list"))
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["feed.layout": FetchedValue(.bool(true))]), hooks: hooks)

        #expect(service.remoteValue(for: FeedValues.$layout) == .list)
        #expect(service.remoteValue(for: FeedValues.$title) == "list")
        #expect(service.remoteValue(for: FeedValues.$showsStories) == false)
    }

    @Test func onlyAValueThatCameFromTheExperimentIsAnExposure() {
        let hooks = RecordingHooks()
        let keeper = InMemoryValueKeeper([
            "feed.title": FetchedValue(.string("BIG NEWS"), group: group), "feed.shows_stories": FetchedValue(.bool(true)),
        ])
        let service = RemoteValueService(keeper: keeper, hooks: hooks)

        let feed = service.getValues(for: FeedValues.self)
        _ = service.getValues(for: FeedValues.remoteKeys)
        #expect(hooks.takeNotes() == [])
        #expect(feed.title == "BIG NEWS" && feed.showsStories)
        #expect(hooks.takeNotes() == ["read feed.title of bold"])
        service.setDebugValue("small news", for: FeedValues.$title)
        #expect(service.remoteValue(for: FeedValues.$title) == "small news")
        #expect(hooks.takeNotes() == [])
    }
}
