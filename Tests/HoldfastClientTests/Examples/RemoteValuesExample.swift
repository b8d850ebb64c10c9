import Foundation
import HoldfastClient
import HoldfastMacros
import Synchronization
import Testing

// The code of the article RemoteValues; ArticleTests compares the two.

@StringRemoteValue
enum PaywallType: String {
    case a, b, c
}

@BoolRemoteValue
enum StoriesEnabled {
    case enabled, disabled
}

@BaselineStringRemoteValue
struct OnboardingType {
    enum Variant: String {
        case short, long
    }
}

@BaselineBoolRemoteValue(enabledByDefault: true)
struct SoundEnabled {}

@StringRemoteValue
enum Greeting: String {
    case hello, hi
    static let `default`: Self = .hi
}

@RemoteValuesNamespace
enum Values {
    enum PlayerType: String {
        case small, large
    }
    enum CommentsEnabled {
        case enabled, disabled
    }
    struct SearchType {
        enum Variant: String {
            case list, grid
        }
    }
    // An explicit macro is needed only for another default.
    @BaselineBoolRemoteValue(enabledByDefault: true)
    struct VideoEnabled {}
}

struct PageSize: RawRepresentable, IntInitializableRemoteValue {
    static let `default` = PageSize(rawValue: 20)
    var rawValue: Int
}

struct Theme: DecodableRemoteValue, Equatable {
    static let `default` = Theme(dark: false)
    var dark: Bool
}

enum AppKey: String, CaseIterable, RemoteKey {
    case paywallType = "paywall_type"
    case storiesEnabled = "stories_enabled"
    case onboardingType = "onboarding_type"
    case pageSize = "page_size"

    var valueType: any RemoteValue.Type {
        switch self {
        case .paywallType: PaywallType.self
        case .storiesEnabled: StoriesEnabled.self
        case .onboardingType: OnboardingType.self
        case .pageSize: PageSize.self
        }
    }
}

final class AppConfigService: RemoteConfigService, @unchecked Sendable {
    private let log: @Sendable (String) -> Void
    private let lock = NSLock()
    private var debugValues: [String: any RemoteValue] = [:]

    init(keeper: any RemoteConfigKeeper, log: @escaping @Sendable (String) -> Void) {
        self.log = log
        super.init(keeper: keeper)
    }

    override func trackKeysNotFound(_ keys: [any RemoteKey]) {
        log("no value for \(keys.map(\.name))")
    }

    override func trackIncorrectValue(_ value: HoldfastValue, for key: any RemoteKey) {
        log("\(key.name) cannot be \(value)")
    }

    override func trackExperimentalGroup(_ group: String, for key: any RemoteKey) {
        log("\(key.name): \(group)")
    }

    override func debugValue(for key: any RemoteKey) -> (any RemoteValue)? {
        lock.withLock { debugValues[key.name] }
    }

    func setDebugValue(_ value: (any RemoteValue)?, for key: AppKey) {
        lock.withLock { debugValues[key.name] = value }
        valuesDidChange()
    }
}

@Suite(.timeLimit(.minutes(5)))
struct RemoteValuesExample {
    @Test func `Values are audited, read, listed and followed`() async throws {
        let keeper = InMemoryRemoteConfigKeeper([
            "paywall_type": "b", "onboarding_type": "long_baseline", "page_size": "many",
        ])
        let lines = Mutex<[String]>([])
        let service = AppConfigService(keeper: keeper) { line in lines.withLock { $0.append(line) } }
        try await service.fetch()
        service.getValues(for: AppKey.allCases)
        #expect(
            lines.withLock { $0 } == [
                #"page_size cannot be string("many")"#, #"no value for ["stories_enabled"]"#,
            ])

        let paywall: PaywallType = service.remoteValue(for: AppKey.paywallType)
        let onboarding = service.remoteValue(for: AppKey.onboardingType, as: OnboardingType.self)
        #expect(paywall == .b)
        #expect(onboarding.variant == .long && onboarding.baseline)

        for state in service.states(of: AppKey.allCases) {
            print(state.key.name, state.typeName, state.value.displayName, state.source)
            print("default:", state.defaultValue.displayName, "of", state.possibleValues.map(\.displayName))
        }
        service.setDebugValue(PaywallType.c, for: .paywallType)
        #expect(service.remoteValue(for: AppKey.paywallType, as: PaywallType.self) == .c)

        let following = Task {
            for await size in service.remoteValues(for: AppKey.pageSize, as: PageSize.self) {
                if size.rawValue == 50 { return true }
            }
            return false
        }
        keeper.set(50, for: "page_size")
        #expect(await following.value)
    }

    @Test func `Values come out of flags`() async throws {
        let client = try Client().client
        try await client.initialize(user: HoldfastUser(id: "ada"))
        let service = AppConfigService(keeper: HoldfastRemoteConfigKeeper(client: client)) { print($0) }
        try await service.fetch()
        enum Key: String, RemoteKey {
            case title = "checkout.title"
            var valueType: any RemoteValue.Type { Title.self }
        }
        struct Title: StringInitializableRemoteValue {
            static let `default` = Title(name: "")
            let name: String
            init(name: String) { self.name = name }
        }
        #expect(service.remoteValue(for: Key.title, as: Title.self).name == "Pay")
        #expect(Values.PlayerType.default == .small && Values.VideoEnabled.default.isEnabled)
        #expect(Greeting.default == .hi && Theme.parse(["dark": true]) == Theme(dark: true))
    }
}
