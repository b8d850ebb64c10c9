import Dispatch
import Glibc

/// Shows a count on standard error while a long command runs, if standard error is a terminal.
final class Progress {
    private let verb: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private var count = 0
    /// The count that was shown last.
    private var shown = 0
    /// The number of elements between two updates.
    private static let step = 10_000

    /// - Parameter verb: the word before the count, such as `exported`.
    init(_ verb: String) {
        self.verb = verb
    }

    /// Adds elements to the count.
    func add(_ number: Int) {
        count += number
        guard isShown, count - shown >= Self.step else { return }
        shown = count
        show(end: "\r")
    }

    /// Shows the final count.
    func finish() {
        if isShown, count > 0 { show(end: "\n") }
    }

    private func show(end: String) {
        OpenFile.printError("\(verb) \(count) profiles\(end)")
    }
}

/// Shows the progress of a backup or restore on standard error once a second, if standard error is a terminal. The
/// progress is the size of the copy's file.
final class CopyProgress {
    private let timer: (any DispatchSourceTimer)?

    /// - Parameters:
    ///   - source: the path of the file that is copied.
    ///   - copy: the path of the growing copy.
    init(of source: String, to copy: String) {
        guard isatty(STDERR_FILENO) == 1 else {
            timer = nil
            return
        }
        let timer = DispatchSource.makeTimerSource()
        timer.schedule(deadline: .now() + 1, repeating: 1)
        timer.setEventHandler {
            // The copy has no free pages, so it can be smaller than the source.
            let text = "\(Self.mebibytes(copy)) of at most \(Self.mebibytes(source)) MiB\r"
            OpenFile.printError(text)
        }
        timer.resume()
        self.timer = timer
    }

    func finish() {
        timer?.cancel()
    }

    /// Returns the size of a file in MiB.
    private static func mebibytes(_ path: String) -> Int {
        var status = stat()
        return stat(path, &status) == 0 ? Int(status.st_size) >> 20 : 0
    }
}
