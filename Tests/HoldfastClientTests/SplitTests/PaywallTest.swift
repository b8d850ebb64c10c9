import HoldfastClient

enum PaywallTest: SplitTest {
    static let key = "paywall"

    enum Group: String, CaseIterable {
        case control
        case controlCheck = "control_check"
        case annualFirst = "annual_first"
    }
}
