import Testing

/// The expansion of each macro.
struct RemoteValueMacroTests {
    private func expect(
        _ source: String, adds additions: Set<String>, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let expansion = try Expansion(of: source)
        #expect(expansion.additions == additions, sourceLocation: sourceLocation)
        #expect(expansion.diagnostics == [], sourceLocation: sourceLocation)
    }

    @Test func `An enum with string cases becomes a string value`() throws {
        try expect(
            """
            @StringRemoteValue
            enum PaywallType: String {
                case a, b, c
            }
            """, adds: ["extension PaywallType: CaseIterable, StringInitializableRemoteValue {\n}"])
    }

    @Test func `Conformances that are written are not repeated`() throws {
        try expect(
            """
            @StringRemoteValue
            enum PaywallType: String, CaseIterable {
                case a
                static let `default`: Self = .a
            }
            """, adds: ["extension PaywallType: StringInitializableRemoteValue {\n}"])
    }

    @Test func `An enum with the two cases becomes a bool value`() throws {
        try expect(
            """
            @BoolRemoteValue
            enum StoriesEnabled {
                case enabled, disabled
            }
            """, adds: ["extension StoriesEnabled: CaseIterable, BoolEnumRemoteValue {\n}"])
    }

    @Test func `A bool value has the default of the argument`() throws {
        try expect(
            """
            @BoolRemoteValue(enabledByDefault: true)
            public enum StoriesEnabled {
                case disabled
                case enabled
            }
            """,
            adds: [
                """
                public static var `default`: Self {
                    true ? .enabled : .disabled
                }
                """,
                "extension StoriesEnabled: CaseIterable, BoolEnumRemoteValue {\n}",
            ])
    }

    @Test func `A struct with variants becomes a value with a baseline, and its variants a string value`() throws {
        try expect(
            """
            @BaselineStringRemoteValue
            struct PaywallTest {
                enum Variant: String {
                    case a, b
                }
            }
            """,
            adds: [
                """
                let baseline: Bool

                let variant: Variant

                init(baseline: Bool, variant: Variant) {
                    self.baseline = baseline
                    self.variant = variant
                }
                """,
                "@StringRemoteValue",
                "extension PaywallTest.Variant: CaseIterable, StringInitializableRemoteValue {\n}",
                "extension PaywallTest: CaseIterable, BaselineStringRemoteValue, ExperimentalGroupTrackable {\n}",
            ])
    }

    @Test func `An empty struct becomes a bool value with a baseline`() throws {
        try expect(
            """
            @BaselineBoolRemoteValue(enabledByDefault: true)
            public struct SoundEnabled {
            }
            """,
            adds: [
                """
                public let baseline: Bool

                public let isEnabled: Bool

                public init(baseline: Bool, isEnabled: Bool) {
                    self.baseline = baseline
                    self.isEnabled = isEnabled
                }

                public static var `default`: Self {
                    Self(baseline: true, isEnabled: true)
                }
                """,
                "extension SoundEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {\n}",
            ])
    }

    @Test func `A namespace infers the macro of each type, and an explicit one wins`() throws {
        func members(_ rest: String = "") -> String {
            """
            let baseline: Bool

            let isEnabled: Bool

            init(baseline: Bool, isEnabled: Bool) {
                self.baseline = baseline
                self.isEnabled = isEnabled
            }
            """ + rest
        }
        try expect(
            """
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
            adds: [
                "@StringRemoteValue", "@BoolRemoteValue", "@BaselineBoolRemoteValue", members(),
                members("\n\nstatic var `default`: Self {\n    Self(baseline: true, isEnabled: true)\n}"),
                "extension Values.OnboardingType: CaseIterable, StringInitializableRemoteValue {\n}",
                "extension Values.CEnabled: CaseIterable, BoolEnumRemoteValue {\n}",
                "extension Values.AEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {\n}",
                "extension Values.BEnabled: CaseIterable, BaselineBoolRemoteValue, ExperimentalGroupTrackable {\n}",
            ])
    }
}
