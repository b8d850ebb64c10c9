import HoldfastClient
import Testing

/// The types of remote values: defaults, cases, what is a correct value.
struct RemoteValueTests {
    @Test func `The default is the first case, disabled, or what the type declares`() {
        #expect(Macro.PaywallType.default == .a && ByHand.PaywallType.default == .a)
        #expect(Macro.PaywallTypeB.default == .b && ByHand.PaywallTypeB.default == .b)
        #expect(Macro.AFeatureEnabled.default == .disabled && ByHand.AFeatureEnabled.default == .disabled)
        #expect(Macro.BFeatureEnabled.default == .enabled && ByHand.BFeatureEnabled.default == .enabled)
        #expect(Macro.CFeatureEnabled.default == .enabled)
        #expect(Macro.StringBaselineTest.default == .init(baseline: true, variant: .a))
        #expect(ByHand.StringBaselineTest.default == .init(baseline: true, variant: .a))
        #expect(Macro.StringBaselineTestB.default == .init(baseline: true, variant: .b))
        #expect(Macro.BoolBaselineTest.default == .init(baseline: true, isEnabled: false))
        #expect(Macro.BoolBaselineTestB.default == .init(baseline: true, isEnabled: true))
        #expect(ByHand.BoolBaselineTest.default == .init(baseline: true, isEnabled: true))
    }

    @Test func `A namespace gives each type its macro`() {
        #expect(Inferred.PaywallType.default == .init(baseline: true, variant: .a))
        #expect(Inferred.AFeatureEnabled.default == .init(baseline: true, isEnabled: false))
        #expect(Inferred.BFeatureEnabled.default == .init(baseline: true, isEnabled: true))
        #expect(Inferred.CFeatureEnabled.default == .disabled)
        #expect(Inferred.OnboardingType.default == .x)
    }

    @Test(
        arguments: [
            ("b", false, "b"), ("b_baseline", true, "b"), ("d", nil, ""), ("_baseline", nil, ""),
            ("b_baseline_baseline", nil, ""),
        ] as [(String, Bool?, String)])
    func `Baseline is a suffix of the value`(text: String, baseline: Bool?, name: String) {
        let value = Macro.StringBaselineTest.parse(.string(text))
        #expect(value?.baseline == baseline)
        #expect(value?.name ?? "" == name)
        #expect(ByHand.StringBaselineTest.parse(.string(text))?.baseline == baseline)
    }

    @Test(
        arguments: [
            ("true", .init(baseline: false, isEnabled: true)), ("false", .init(baseline: false, isEnabled: false)),
            ("true_baseline", .init(baseline: true, isEnabled: true)), (true, .init(baseline: false, isEnabled: true)),
            ("yes", nil), (1, nil),
        ] as [(HoldfastValue, Macro.BoolBaselineTest?)])
    func `A bool with baseline is true or false`(raw: HoldfastValue, value: Macro.BoolBaselineTest?) {
        #expect(Macro.BoolBaselineTest.parse(raw) == value)
    }

    @Test func `A baseline is no experimental group`() {
        func group(_ value: some ExperimentalGroupTrackable) -> String? { value.experimentalGroup }
        #expect(group(Macro.StringBaselineTest(baseline: false, variant: .b)) == "b")
        #expect(group(Macro.StringBaselineTest(baseline: true, variant: .b)) == nil)
        #expect(group(Macro.BoolBaselineTest(baseline: false, isEnabled: true)) == "Enabled")
        #expect(group(ByHand.BoolBaselineTest(baseline: true, isEnabled: true)) == nil)
    }

    @Test(
        arguments: [
            (true, .enabled), (false, .disabled), ("true", .enabled), ("off", .disabled), ("maybe", nil), (1, nil),
        ] as [(HoldfastValue, Macro.AFeatureEnabled?)])
    func `A bool is true or false`(raw: HoldfastValue, value: Macro.AFeatureEnabled?) {
        #expect(Macro.AFeatureEnabled.parse(raw) == value)
    }

    @Test func `Numbers and JSON are values too`() {
        #expect(ByHand.PageSize.parse(30)?.rawValue == 30)
        #expect(ByHand.PageSize.parse("30")?.rawValue == 30)
        #expect(ByHand.PageSize.parse(0.5) == nil)
        #expect(ByHand.Ratio.parse(2)?.rawValue == 2)
        #expect(ByHand.Ratio.parse("nan") == nil)
        #expect(ByHand.Theme.parse(["dark": true]) == .init(dark: true))
        #expect(ByHand.Theme.parse(#"{"dark":true}"#) == .init(dark: true))
        #expect(ByHand.Theme.parse("dark") == nil)
        #expect(ByHand.Theme.parse(["dark": 1]) == nil)
    }

    @Test func `All cases have names for a list`() {
        #expect(Macro.PaywallType.allCases.map(\.displayName) == ["a", "b", "c"])
        #expect(Macro.AFeatureEnabled.allCases.map(\.displayName) == ["enabled", "disabled"])
        #expect(ByHand.StringBaselineTest.allCases.count == 6)
        #expect(Set(Macro.BoolBaselineTest.allCases.map(\.displayName)).count == 4)
        #expect(ByHand.PageSize.default.displayName == "20")
    }

    @Test func `A string value has the same bytes`() {
        enum Accent: String, CaseIterable, StringInitializableRemoteValue {
            case cafe = "caf\u{E9}"
        }
        #expect(Accent.parse("caf\u{E9}") == .cafe)
        #expect(Accent.parse("cafe\u{301}") == nil)
    }
}
