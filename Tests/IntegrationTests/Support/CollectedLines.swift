import Foundation

/// The lines that come from a descriptor, read by a thread so that the writer never waits.
final class CollectedLines: @unchecked Sendable {
    // Safe: both are only used with the condition's lock held.
    private var lines: [String] = []
    private var hasEnded = false
    private let condition = NSCondition()

    /// - Parameter descriptor: closed at its end.
    init(reading descriptor: Int32) {
        Thread.detachNewThread { [self] in collect(descriptor) }
    }

    var all: [String] {
        condition.withLock { lines }
    }

    var text: String {
        all.joined(separator: "\n")
    }

    /// Blocks until there is a line that fits, or no more line will come.
    func first(where fits: (String) -> Bool) -> String? {
        condition.withLock {
            var seen = 0
            let deadline = Date(timeIntervalSinceNow: 20)
            while true {
                if let line = lines[seen...].first(where: fits) { return line }
                seen = lines.count
                if hasEnded || !condition.wait(until: deadline) { return nil }
            }
        }
    }

    func waitForEnd() {
        condition.withLock {
            while !hasEnded { condition.wait() }
        }
    }

    private func collect(_ descriptor: Int32) {
        var rest: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            rest += buffer[..<count]
            var pieces = rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map(Array.init)
            rest = pieces.popLast() ?? []
            add(pieces)
        }
        close(descriptor)
        if !rest.isEmpty { add([rest]) }
        condition.withLock {
            hasEnded = true
            condition.broadcast()
        }
    }

    private func add(_ pieces: [[UInt8]]) {
        guard !pieces.isEmpty else { return }
        condition.withLock {
            lines += pieces.map { String(decoding: $0, as: UTF8.self) }
            condition.broadcast()
        }
    }
}
