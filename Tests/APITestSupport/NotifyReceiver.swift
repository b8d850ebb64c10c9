import Foundation
import ProcessTestSupport

/// A socket on which a test listens as systemd does.
package final class NotifyReceiver {
    /// The value of `NOTIFY_SOCKET`.
    package let name: String
    private let descriptor: Int32
    private let directory: TemporaryDirectory

    /// - Parameter isAbstract: whether the socket has no file.
    package init(isAbstract: Bool = false) throws {
        directory = try TemporaryDirectory()
        name = isAbstract ? "@holdfast-\(UUID().uuidString)" : directory.file("notify")
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let path = Array(name.utf8)
        let address =
            withUnsafeBytes(of: sa_family_t(AF_UNIX)) { Array($0) } + (isAbstract ? [0] + path.dropFirst() : path + [0])
        let code = address.withUnsafeBytes {
            bind(descriptor, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t($0.count))
        }
        guard code == 0 else { throw TestFailure("bind: \(String(cString: strerror(errno)))") }
    }

    deinit {
        close(descriptor)
    }

    /// Returns the lines of the next datagram; `nil` if none comes in time.
    package func next(milliseconds: Int = 60_000) -> [String]? {
        var limit = timeval(tv_sec: milliseconds / 1_000, tv_usec: milliseconds % 1_000 * 1_000)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        guard count > 0 else { return nil }
        return String(decoding: buffer[..<count], as: UTF8.self).split(separator: "\n").map(String.init)
    }

    /// Returns the lines of the next datagram that has this one; `nil` if none comes in time.
    package func next(with line: String) -> [String]? {
        while let lines = next() {
            if lines.contains(line) { return lines }
        }
        return nil
    }
}
