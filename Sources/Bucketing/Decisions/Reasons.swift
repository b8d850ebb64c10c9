/// Why a decision was made, as texts; they are only built when somebody wants them.
struct Reasons: Sendable {
    enum Detail: Int, Sendable {
        case none
        /// Those texts that the Optimizely Agent answers.
        case agent
        /// Also the outcome of bucketing, which the Agent keeps to its log.
        case full
    }

    private(set) var texts: [String] = []
    private let detail: Detail

    init(_ detail: Detail) {
        self.detail = detail
    }

    mutating func add(_ text: @autoclosure () -> String) {
        if detail != .none { texts.append(text()) }
    }

    mutating func addDetail(_ text: @autoclosure () -> String) {
        if detail == .full { texts.append(text()) }
    }
}
