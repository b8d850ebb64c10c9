import HoldfastClient
import Testing

@Suite(.timeLimit(.minutes(1)))
struct RemoteValueServiceTests {
    @Test func beginsWithWhatIsKept() {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["greeting": FetchedValue(.string("Kept"))]))
        #expect(service.values.greeting == "Kept")
    }

    @Test func aFailedFetchLeavesTheValues() async throws {
        let keeper = InMemoryValueKeeper()
        let service = RemoteValueService(keeper: keeper)
        keeper.set(FetchedValue(.string("Good morning")), for: "greeting")
        #expect(try await service.fetch().greeting == "Good morning")

        keeper.failFetches(with: .unavailable(reason: "no network"))
        await #expect(throws: RemoteValueError.unavailable(reason: "no network")) { try await service.fetch() }
        #expect(service.values.greeting == "Good morning")
    }

    @Test func anAnswerThatComesLateDoesNotUndoALaterOne() async throws {
        let keeper = GatedKeeper()
        let service = RemoteValueService(keeper: keeper)
        var fetches = keeper.fetches.makeAsyncIterator()

        async let first = service.fetch()
        let firstFetch = try #require(await fetches.next())
        async let second = service.fetch()
        let secondFetch = try #require(await fetches.next())

        secondFetch.resume(returning: ["greeting": FetchedValue(.string("second"))])
        #expect(try await second.greeting == "second")
        firstFetch.resume(returning: ["greeting": FetchedValue(.string("first"))])
        #expect(try await first.greeting == "second")
    }

    @Test func aNamespaceIsOfOneMoment() async throws {
        let keeper = InMemoryValueKeeper()
        let service = RemoteValueService(keeper: keeper)
        let before = service.getValues(for: FeedValues.self)
        keeper.set(FetchedValue(.string("Weather")), for: "feed.title")
        try await service.fetch()

        #expect(before.title == "News")
        #expect(service.getValues(for: FeedValues.self).title == "Weather")
    }

    @Test func changesTellWhatChangedFromWhateverSide() async throws {
        let keeper = InMemoryValueKeeper()
        let service = RemoteValueService(keeper: keeper)
        var changes = service.changes().makeAsyncIterator()

        keeper.set(FetchedValue(.string("Good morning")), for: "greeting")
        let pushed = try #require(await changes.next())
        #expect(pushed.keys == ["greeting"] && !pushed.concerns(FeedValues.self))
        #expect(pushed.values.greeting == "Good morning")

        service.setDebugValue(true, for: FeedValues.$showsStories)
        let debug = try #require(await changes.next())
        #expect(debug.keys == ["feed.shows_stories"] && debug.concerns(FeedValues.self))

        service.removeDebugValues()
        #expect(try #require(await changes.next()).keys == ["feed.shows_stories"])
    }

    @Test func aSlowReaderGetsAllChangesAsOne() async throws {
        let service = RemoteValueService(keeper: InMemoryValueKeeper())
        var changes = service.changes().makeAsyncIterator()
        for number in 1...1_000 {
            service.setCustomValue("\(number)", for: RemoteValue(RemoteKey("key\(number % 10)"), default: ""))
        }

        let change = try #require(await changes.next())
        #expect(change.keys.count == 10)
        #expect(change.values[RemoteKey("key0")] == .string("1000"))
    }

    @Test func whatLooksTheSameIsNoChange() async throws {
        let service = RemoteValueService(keeper: InMemoryValueKeeper(["greeting": FetchedValue(.string("Hello"))]))
        var changes = service.changes().makeAsyncIterator()
        try await service.fetch()
        service.setCustomValue("Hello", for: RemoteValues.$greeting)
        service.setCustomValue("Goodbye", for: RemoteValues.$greeting)

        let change = try #require(await changes.next())
        #expect(change.values.greeting == "Goodbye")
    }

    @Test func changesEndWithTheService() async {
        var service: RemoteValueService? = RemoteValueService(keeper: InMemoryValueKeeper())
        var changes = service?.changes().makeAsyncIterator()
        service = nil
        #expect(await changes?.next() == nil)
    }
}
