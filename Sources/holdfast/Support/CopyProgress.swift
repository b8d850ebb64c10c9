import Dispatch
import Foundation

/// Tells on standard error how far a copy is, once a second, when a person looks on.
final class CopyProgress {
    private let timer: (any DispatchSourceTimer)?

    init(of source: String, to copy: String) {
        guard isatty(STDERR_FILENO) == 1 else {
            timer = nil
            return
        }
        let timer = DispatchSource.makeTimerSource()
        timer.schedule(deadline: .now() + 1, repeating: 1)
        timer.setEventHandler {
            // The copy has no gaps, so that it may end before the source's size is reached.
            let text = "\(Self.mebibytes(copy)) of at most \(Self.mebibytes(source)) MiB\r"
            FileHandle.standardError.write(Data(text.utf8))
        }
        timer.resume()
        self.timer = timer
    }

    func finish() {
        timer?.cancel()
    }

    private static func mebibytes(_ path: String) -> Int {
        var status = stat()
        return stat(path, &status) == 0 ? Int(status.st_size) >> 20 : 0
    }
}
