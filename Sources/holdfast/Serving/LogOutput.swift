import Glibc

/// Writes lines to a descriptor. If its reader hangs, lines are dropped, so that the server does not wait for the
/// reader.
struct LogOutput {
    private let descriptor: Int32
    /// The number of lines dropped since the last one that was written.
    private var dropped = 0
    /// Whether the last line was written only in part.
    private var isCut = false

    /// How long the first line waits for a slow reader, in milliseconds. Further lines do not wait.
    private static let patience: Int32 = 100
    /// `PIPE_BUF`: a write of this size does not block when `poll` says that the descriptor is writable.
    private static let pieceSize = 4096

    init(descriptor: Int32) {
        self.descriptor = descriptor
    }

    /// Writes a line, preceded by a note if lines were dropped.
    ///
    /// - Parameter note: returns the note for a number of dropped lines.
    mutating func write(_ line: String, note: (_ dropped: Int) -> String) {
        let text = (isCut ? "\n" : "") + (dropped > 0 ? note(dropped) + "\n" : "") + line + "\n"
        let bytes = Array(text.utf8)
        var rest = bytes[...]
        while !rest.isEmpty, isWritable(within: dropped == 0 ? Self.patience : 0) {
            let count = rest.prefix(Self.pieceSize).withUnsafeBytes {
                Glibc.write(descriptor, $0.baseAddress, $0.count)
            }
            if count < 0, errno == EINTR { continue }
            // The server continues if its log is no longer read.
            guard count > 0 else { break }
            rest = rest.dropFirst(count)
        }
        if rest.isEmpty {
            dropped = 0
            isCut = false
        } else {
            dropped += 1
            isCut = isCut || rest.count < bytes.count
        }
    }

    /// Waits until the descriptor is writable.
    ///
    /// - Returns: `false` if the descriptor does not become writable within the time.
    private func isWritable(within milliseconds: Int32) -> Bool {
        var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return poll(&state, 1, milliseconds) > 0
    }
}
