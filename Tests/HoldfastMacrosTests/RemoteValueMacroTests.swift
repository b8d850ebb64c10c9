import Testing

/// The expansion of each macro.
struct RemoteValueMacroTests {
    @Test func `An enum with string cases becomes a string value`() {
        expectExpansion(
            of: """
                @StringRemoteValue
                enum PaywallType: String {
                    case a, b, c
                }
                """,
            is: """
                enum PaywallType: String {
                    case a, b, c
                }

                extension PaywallType: CaseIterable, StringInitializableRemoteValue {
                }
                """)
    }

    @Test func `Conformances that are written are not repeated`() {
        expectExpansion(
            of: """
                @StringRemoteValue
                enum PaywallType: String, CaseIterable {
                    case a
                    static let `default`: Self = .a
                }
                """,
            is: """
                enum PaywallType: String, CaseIterable {
                    case a
                    static let `default`: Self = .a
                }

                extension PaywallType: StringInitializableRemoteValue {
                }
                """)
    }

    @Test func `An enum with the two cases becomes a bool value`() {
        expectExpansion(
            of: """
                @BoolRemoteValue
                enum StoriesEnabled {
                    case enabled, disabled
                }
                """,
            is: """
                enum StoriesEnabled {
                    case enabled, disabled
                }

                extension StoriesEnabled: CaseIterable, BoolEnumRemoteValue {
                }
                """)
    }

    @Test func `A bool value has the default of the argument`() {
        expectExpansion(
            of: """
                @BoolRemoteValue(enabledByDefault: true)
                public enum StoriesEnabled {
                    case disabled
                    case enabled
                }
                """,
            is: """
                public enum StoriesEnabled {
                    case disabled
                    case enabled

                    public static var `default`: Self {
                        true ? .enabled : .disabled
                    }
                }

                extension StoriesEnabled: CaseIterable, BoolEnumRemoteValue {
                }
                """)
    }

    @Test func `A struct with variants becomes a value with a baseline, and its variants a string value`() {
        expectExpansion(
            of: """
                @BaselineStringRemoteValue
                struct PaywallTest {
                    enum Variant: String {
                        case a, b
                    }
                }
                """,
            is: """
                struct PaywallTest {
                    enum Variant: String {
                        case a, b
                    }

                    let baseline: Bool

                    let variant: Variant

                    init(baseline: Bool, variant: Variant) {
                        self.baseline = baseline
                        self.variant = variant
                    }
                }

                extension PaywallTest.Variant: CaseIterable, StringInitializableRemoteValue {
                }

                extension PaywallTest: CaseIterable, BaselineStringRemoteValue, ExperimentalGroupTrackable {
                }
                """)
    }

    @Test func `An empty struct becomes a bool value with a baseline`() {
        expectExpansion(
            of: """
                @BaselineBoolRemoteValue(enabledByDefault: true)
                public struct SoundEnabled {
                }
                """,
            is: """
                public struct SoundEnabled {

                    public let baseline: Bool

                    public let isEnabled: Bool

                    public init(baseline: Bool, isEnabled: Bool) {
                        self.baseline = baseline
                        self.isEnabled = isEnabled
                    }

                    public static var `default`: Self {
                        Self(baseline: true, isEnabled: true)
                    }
                }

                extension SoundEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {
                }
                """)
    }

    @Test func `A namespace infers the macro of each type, and an explicit one wins`() {
        expectExpansion(
            of: """
                @RemoteValuesNamespace
                enum Values {
                    enum OnboardingType: String {
                        case x, y
                    }
                    enum CEnabled {
                        case enabled, disabled
                    }
                    struct AEnabled {
                    }
                    @BaselineBoolRemoteValue(enabledByDefault: true)
                    struct BEnabled {
                    }
                }
                """,
            is: """
                enum Values {
                    enum OnboardingType: String {
                        case x, y
                    }
                    enum CEnabled {
                        case enabled, disabled
                    }
                    struct AEnabled {

                        let baseline: Bool

                        let isEnabled: Bool

                        init(baseline: Bool, isEnabled: Bool) {
                            self.baseline = baseline
                            self.isEnabled = isEnabled
                        }
                    }
                    struct BEnabled {

                        let baseline: Bool

                        let isEnabled: Bool

                        init(baseline: Bool, isEnabled: Bool) {
                            self.baseline = baseline
                            self.isEnabled = isEnabled
                        }

                        static var `default`: Self {
                            Self(baseline: true, isEnabled: true)
                        }
                    }
                }

                extension Values.OnboardingType: CaseIterable, StringInitializableRemoteValue {
                }

                extension Values.CEnabled: CaseIterable, BoolEnumRemoteValue {
                }

                extension Values.AEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {
                }

                extension Values.BEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {
                }
                """)
    }
}
