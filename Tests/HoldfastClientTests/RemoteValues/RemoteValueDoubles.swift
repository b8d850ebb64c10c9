import HoldfastClient
import HoldfastMacros
import Synchronization

// The examples of the four kinds, by macro and by hand.

enum Macro {
    @StringRemoteValue
    enum PaywallType: String {
        case a, b, c
    }

    @StringRemoteValue
    enum PaywallTypeB: String {
        case a, b, c
        static let `default`: Self = .b
    }

    @BoolRemoteValue
    enum AFeatureEnabled {
        case enabled, disabled
    }

    @BoolRemoteValue
    enum BFeatureEnabled {
        case enabled, disabled
        static let `default`: Self = .enabled
    }

    @BoolRemoteValue(enabledByDefault: true)
    enum CFeatureEnabled {
        case enabled, disabled
    }

    @BaselineStringRemoteValue
    struct StringBaselineTest {
        enum Variant: String {
            case a, b, c
        }
    }

    @BaselineStringRemoteValue
    struct StringBaselineTestB {
        enum Variant: String {
            case a, b, c
            static let `default`: Self = .b
        }
    }

    @BaselineBoolRemoteValue
    struct BoolBaselineTest {}

    @BaselineBoolRemoteValue(enabledByDefault: true)
    struct BoolBaselineTestB {}
}

enum ByHand {
    enum PaywallType: String, CaseIterable, StringInitializableRemoteValue {
        case a, b, c
    }

    enum PaywallTypeB: String, CaseIterable, StringInitializableRemoteValue {
        case a, b, c
        static let `default`: Self = .b
    }

    enum AFeatureEnabled: CaseIterable, BoolEnumRemoteValue {
        case enabled
        case disabled
    }

    enum BFeatureEnabled: CaseIterable, BoolEnumRemoteValue {
        case enabled
        case disabled
        static let `default`: Self = .enabled
    }

    struct StringBaselineTest: CaseIterable, BaselineStringRemoteValue, ExperimentalGroupTrackable {
        enum Variant: String, CaseIterable, StringInitializableRemoteValue {
            case a, b, c
        }
        let baseline: Bool
        let variant: Variant

        init(baseline: Bool, variant: Variant) {
            self.baseline = baseline
            self.variant = variant
        }
    }

    struct BoolBaselineTest: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {
        let baseline: Bool
        let isEnabled: Bool

        init(baseline: Bool, isEnabled: Bool) {
            self.baseline = baseline
            self.isEnabled = isEnabled
        }

        static let `default` = BoolBaselineTest(baseline: true, isEnabled: true)
    }

    struct PageSize: RawRepresentable, IntInitializableRemoteValue {
        static let `default` = PageSize(rawValue: 20)
        var rawValue: Int
    }

    struct Ratio: RawRepresentable, DoubleInitializableRemoteValue {
        static let `default` = Ratio(rawValue: 0.5)
        var rawValue: Double
    }

    struct Theme: DecodableRemoteValue, Equatable {
        static let `default` = Theme(dark: false)
        var dark: Bool
    }
}

@RemoteValuesNamespace
enum Inferred {
    struct PaywallType {
        enum Variant: String {
            case a, b, c
        }
    }
    struct AFeatureEnabled {}
    // An explicit macro overrides the inferred one.
    @BaselineBoolRemoteValue(enabledByDefault: true)
    struct BFeatureEnabled {}
    enum CFeatureEnabled {
        case enabled, disabled
    }
    enum OnboardingType: String {
        case x, y, z
    }
}

enum TestKey: String, CaseIterable, RemoteKey {
    case paywallType = "paywall_type"
    case aFeatureEnabled = "a_feature_enabled"
    case paywallTest = "paywall_test"
    case pageSize = "page_size"

    var valueType: any RemoteValue.Type {
        switch self {
        case .paywallType: Macro.PaywallType.self
        case .aFeatureEnabled: Macro.AFeatureEnabled.self
        case .paywallTest: Macro.StringBaselineTest.self
        case .pageSize: ByHand.PageSize.self
        }
    }
}

/// Records the calls of the audit, and returns the values that a test sets.
final class RecordingService: RemoteConfigService, @unchecked Sendable {
    // Safe: the state is in a mutex.
    private struct State {
        var calls: [String] = []
        var custom: [String: any RemoteValue] = [:]
        var debug: [String: any RemoteValue] = [:]
    }

    private let state = Mutex(State())

    var calls: [String] { state.withLock { $0.calls } }

    func setCustom(_ value: (any RemoteValue)?, for key: TestKey) {
        state.withLock { $0.custom[key.name] = value }
        valuesDidChange()
    }

    func setDebug(_ value: (any RemoteValue)?, for key: TestKey) {
        state.withLock { $0.debug[key.name] = value }
        valuesDidChange()
    }

    private func record(_ call: String) { state.withLock { $0.calls.append(call) } }

    override func customValue(for key: any RemoteKey) -> (any RemoteValue)? { state.withLock { $0.custom[key.name] } }
    override func debugValue(for key: any RemoteKey) -> (any RemoteValue)? { state.withLock { $0.debug[key.name] } }
    override func trackKeyNotFound(_ key: any RemoteKey) { record("missing \(key.name)") }
    override func trackKeysNotFound(_ keys: [any RemoteKey]) { record("all missing \(keys.map(\.name))") }
    override func trackIncorrectValue(_ value: HoldfastValue, for key: any RemoteKey) {
        record("incorrect \(key.name) \(value)")
    }
    override func trackIncorrectValues(_ values: [(key: any RemoteKey, value: HoldfastValue)]) {
        record("all incorrect \(values.map(\.key.name))")
    }
    override func wrongType(_ type: any RemoteValue.Type, for key: any RemoteKey) {
        record("wrong type \(key.name) \(type)")
    }
    override func trackExperimentalGroup(_ group: String, for key: any RemoteKey) {
        record("group \(key.name) \(group)")
    }
}
