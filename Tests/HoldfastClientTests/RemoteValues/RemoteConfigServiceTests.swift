import HoldfastClient
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(5))) struct RemoteConfigServiceTests {
    private typealias PaywallType = Macro.PaywallType

    @Test func `Custom beats debug beats remote beats default`() {
        let keeper = InMemoryRemoteConfigKeeper()
        let service = RecordingService(keeper: keeper)
        var type: PaywallType { service.remoteValue(for: TestKey.paywallType) }

        #expect(type == .a)
        keeper.set("b", for: "paywall_type")
        #expect(type == .b)
        service.setDebug(PaywallType.c, for: .paywallType)
        #expect(type == .c)
        service.setCustom(PaywallType.a, for: .paywallType)
        #expect(type == .a)
        service.setDebug(PaywallType.b, for: .paywallType)
        #expect(type == .a)
        service.setCustom(nil, for: .paywallType)
        #expect(type == .b)
        service.setDebug(nil, for: .paywallType)
        keeper.set("nonsense", for: "paywall_type")
        #expect(type == .a)
        // A custom value of another type does not count.
        service.setCustom(Macro.AFeatureEnabled.enabled, for: .paywallType)
        #expect(type == .a)
    }

    @Test func `The audit reports missing keys, incorrect values and groups once each`() {
        let keeper = InMemoryRemoteConfigKeeper(["a_feature_enabled": "perhaps", "paywall_test": "b"])
        let service = RecordingService(keeper: keeper)
        let values = service.getValues(for: TestKey.allCases)

        #expect(
            service.calls == [
                "missing paywall_type", #"incorrect a_feature_enabled string("perhaps")"#, "group paywall_test b",
                "missing page_size", #"all missing ["paywall_type", "page_size"]"#,
                #"all incorrect ["a_feature_enabled"]"#,
            ])
        #expect(values["paywall_type"] as? PaywallType == .a)
        #expect(values["a_feature_enabled"] as? Macro.AFeatureEnabled == .disabled)
        #expect(values["paywall_test"] as? Macro.StringBaselineTest == .init(baseline: false, variant: .b))
    }

    @Test func `An audit without findings reports nothing, and a baseline is no group`() {
        let keeper = InMemoryRemoteConfigKeeper([
            "paywall_type": "c", "a_feature_enabled": true, "paywall_test": "b_baseline", "page_size": 5,
        ])
        let service = RecordingService(keeper: keeper)
        service.getValues(for: TestKey.allCases)
        #expect(service.calls == [])
    }

    @Test func `A value of another type than the key's is told, and a key that has its type takes no other`() async {
        let keeper = InMemoryRemoteConfigKeeper(["paywall_type": "b"])
        let service = RecordingService(keeper: keeper)
        #expect(service.remoteValue(for: TestKey.paywallType, as: Macro.AFeatureEnabled.self) == .disabled)
        for await enabled in service.remoteValues(for: TestKey.paywallType, as: Macro.AFeatureEnabled.self) {
            #expect(enabled == .disabled)
            break
        }
        #expect(service.calls == Array(repeating: "wrong type paywall_type AFeatureEnabled", count: 2))
        #expect(service.remoteValue(for: .paywall) == .b)
        for await type in service.remoteValues(for: .paywall) {
            #expect(type == .b)
            break
        }
        service.getValues(for: [TypedRemoteKey<PaywallType>.paywall])
        #expect(service.calls.count == 2)
    }

    @Test func `Several listeners have the value at once and after each change, until they are removed`() {
        let keeper = InMemoryRemoteConfigKeeper(["paywall_type": "b"])
        var service: RemoteConfigService? = RemoteConfigService(keeper: keeper)
        let calls = Mutex<[String]>([])
        func listen(_ name: String) -> ListenerToken? {
            service?.addListener(
                for: TestKey.paywallType, as: PaywallType.self, end: { calls.withLock { $0.append("\(name) ends") } }
            ) { type in calls.withLock { $0.append("\(name) \(type)") } }
        }
        let (first, second) = (listen("first"), listen("second"))
        keeper.set("c", for: "paywall_type")
        keeper.set("c", for: "paywall_type")
        first?.cancel()
        keeper.set("a", for: "paywall_type")
        service = nil
        withExtendedLifetime(second) {}
        #expect(
            calls.withLock { $0 } == [
                "first b", "second b", "first c", "second c", "second a", "second ends",
            ])
    }

    @Test func `A failed fetch leaves the values`() async throws {
        struct Offline: Error {}
        let keeper = InMemoryRemoteConfigKeeper(["paywall_type": "b"])
        let service = RemoteConfigService(keeper: keeper)
        keeper.failFetches(with: Offline())
        await #expect(throws: Offline.self) { try await service.fetch() }
        #expect(service.remoteValue(for: TestKey.paywallType, as: PaywallType.self) == .b)
        keeper.failFetches(with: nil)
        try await service.fetch()
    }

    @Test func `A stream has the present value and each change of it`() async {
        let keeper = InMemoryRemoteConfigKeeper()
        var service: RecordingService? = RecordingService(keeper: keeper)
        var types = service?.remoteValues(for: TestKey.paywallType, as: PaywallType.self).makeAsyncIterator()
        #expect(await types?.next() == .a)
        keeper.set(20, for: "page_size")
        keeper.set("b", for: "paywall_type")
        #expect(await types?.next() == .b)
        service?.setDebug(PaywallType.c, for: .paywallType)
        #expect(await types?.next() == .c)
        service = nil
        #expect(await types?.next() == nil)
    }

    @Test func `A stream does not repeat a value, also of a type that cannot be compared`() async {
        typealias Size = ByHand.PageSize
        let keeper = InMemoryRemoteConfigKeeper()
        let service = RemoteConfigService(keeper: keeper)
        let seen = Mutex<[Int]>([])
        let reading = Task {
            for await size in service.remoteValues(for: TestKey.pageSize, as: Size.self) {
                seen.withLock { $0.append(size.rawValue) }
                if size.rawValue == 50 { return }
                // The stream keeps only the newest value: each is read before the next is set.
                keeper.set("b", for: "paywall_type")
                service.valuesDidChange()
                keeper.set(size.rawValue == 20 ? 30 : 50, for: "page_size")
            }
        }
        await reading.value
        #expect(seen.withLock { $0 } == [20, 30, 50])

        // Nor behind a custom value, which is no keeper's.
        let custom = RecordingService(keeper: keeper)
        custom.setCustom(Size(rawValue: 5), for: .pageSize)
        var sizes = custom.remoteValues(for: TestKey.pageSize, as: Size.self).makeAsyncIterator()
        #expect(await sizes.next()?.rawValue == 5)
        custom.valuesDidChange()
        custom.setCustom(Size(rawValue: 6), for: .pageSize)
        #expect(await sizes.next()?.rawValue == 6)
    }

    @Test func `A stream asks its keeper once for each value`() async {
        final class CountingKeeper: RemoteConfigKeeper {
            let inner = InMemoryRemoteConfigKeeper(["page_size": 30])
            let reads = Mutex(0)

            func fetch() async throws {}
            func value(for name: String) -> HoldfastValue? {
                reads.withLock { $0 += 1 }
                return inner.value(for: name)
            }
            func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken { inner.observe(listener) }
        }
        let keeper = CountingKeeper()
        let service = RemoteConfigService(keeper: keeper)
        var sizes = service.remoteValues(for: TestKey.pageSize, as: ByHand.PageSize.self).makeAsyncIterator()
        #expect(await sizes.next()?.rawValue == 30)
        keeper.inner.set(50, for: "page_size")
        #expect(await sizes.next()?.rawValue == 50)
        #expect(keeper.reads.withLock { $0 } == 2)
    }

    @Test func `A method of the app may change values while a stream asks for one`() async {
        final class LazyService: RemoteConfigService, @unchecked Sendable {
            private let loaded = Mutex<PaywallType?>(nil)

            override func debugValue(for key: any RemoteKey) -> (any RemoteValue)? {
                if let value = loaded.withLock({ $0 }) { return value }
                loaded.withLock { $0 = .c }
                valuesDidChange()
                return nil
            }
        }
        let service = LazyService(keeper: InMemoryRemoteConfigKeeper(["paywall_type": "b"]))
        var types = service.remoteValues(for: TestKey.paywallType, as: PaywallType.self).makeAsyncIterator()
        #expect(await types.next() == .c)
    }

    @Test func `Many streams and a slow reader get the newest value`() async {
        let keeper = InMemoryRemoteConfigKeeper()
        let service = RemoteConfigService(keeper: keeper)
        var streams = (0..<3).map { _ in
            service.remoteValues(for: TestKey.pageSize, as: ByHand.PageSize.self).makeAsyncIterator()
        }
        for size in 1...100 { keeper.set(.integer(Int64(size)), for: "page_size") }
        for index in streams.indices { #expect(await streams[index].next()?.rawValue == 100) }
    }

    @Test func `A debug list has type, default, possible values, present value and source`() throws {
        let keeper = InMemoryRemoteConfigKeeper(["paywall_type": "b", "a_feature_enabled": "perhaps"])
        let service = RecordingService(keeper: keeper)
        service.setDebug(Macro.StringBaselineTest(baseline: false, variant: .c), for: .paywallTest)
        let states = service.states(of: TestKey.allCases)

        #expect(states.map(\.key.name) == TestKey.allCases.map(\.name))
        #expect(states.map(\.typeName) == ["PaywallType", "AFeatureEnabled", "StringBaselineTest", "PageSize"])
        #expect(states.map(\.value.displayName) == ["b", "disabled", "c", "20"])
        #expect(states.map(\.defaultValue.displayName) == ["a", "disabled", "a (baseline)", "20"])
        #expect(states.map(\.source) == [.remote, .incorrect("perhaps"), .debug, .missing])
        #expect(states[0].possibleValues.map(\.displayName) == ["a", "b", "c"])
        #expect(states[2].possibleValues.count == 6)
        #expect(states[3].possibleValues.isEmpty)

        // A tester's choice out of the list.
        service.setDebug(states[0].possibleValues[2], for: .paywallType)
        #expect(service.remoteValue(for: TestKey.paywallType, as: PaywallType.self) == .c)
    }
}

extension TypedRemoteKey where Value == Macro.PaywallType {
    fileprivate static var paywall: Self { Self("paywall_type") }
}
