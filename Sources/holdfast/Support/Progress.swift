import Foundation

/// Counts lines on standard error while a long command runs, when a person looks on.
final class Progress {
    private let verb: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private var count = 0
    private var shown = 0

    init(_ verb: String) {
        self.verb = verb
    }

    func add(_ number: Int) {
        count += number
        guard isShown, count - shown >= 10_000 else { return }
        shown = count
        show(end: "\r")
    }

    func finish() {
        if isShown, count > 0 { show(end: "\n") }
    }

    private func show(end: String) {
        FileHandle.standardError.write(Data("\(verb) \(count) profiles\(end)".utf8))
    }
}
