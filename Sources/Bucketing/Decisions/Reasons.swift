/// Why a decision was made, as texts; they are only built when somebody wants them.
struct Reasons: Sendable {
    enum Detail: Int, Sendable {
        case none
        /// Those texts that the Optimizely Agent answers.
        case agent
        /// Those of Holdfast's own API: also the outcome of bucketing, which the Agent keeps to its log, and what an
        /// audience lacks rather than that it cannot be evaluated.
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

    mutating func addForAgent(_ text: @autoclosure () -> String) {
        if detail == .agent { texts.append(text()) }
    }

    /// Adds what was told before.
    mutating func append(_ texts: ArraySlice<String>) {
        self.texts += texts
    }

    mutating func addDetail(_ text: @autoclosure () -> String) {
        if detail == .full { texts.append(text()) }
    }
}
