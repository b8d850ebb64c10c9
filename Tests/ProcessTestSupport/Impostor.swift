import Foundation
import Glibc
import Synchronization

/// A server that is not Holdfast, at an address where Holdfast is expected: as a proxy that answers for it.
public final class Impostor: Sendable {
    public struct CannotListen: Error {}

    public let port: UInt16
    private let listener: Int32
    private let response: [UInt8]
    private let requests = Atomic<Int>(0)

    /// - Parameters:
    ///   - status: with its reason phrase.
    ///   - fields: each with its CRLF.
    public init(_ status: String, _ fields: String = "", body: String = "") throws {
        let length = status.hasPrefix("204") || status.hasPrefix("304") ? "" : "Content-Length: \(body.utf8.count)\r\n"
        response = Array("HTTP/1.1 \(status)\r\n\(fields)\(length)\r\n\(body)".utf8)
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length_ = socklen_t(MemoryLayout<sockaddr_in>.size)
        let listener = listener
        let isListening = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length_) == 0 && listen(listener, 128) == 0
                    && getsockname(listener, $0, &length_) == 0
            }
        }
        guard isListening else { throw CannotListen() }
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [weak self] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0, let self else { break }
                Thread.detachNewThread { self.serve(client) }
            }
            Glibc.close(listener)
        }
    }

    deinit {
        shutdown(listener, Int32(SHUT_RDWR))
    }

    /// How many requests it has answered.
    public var answered: Int { requests.load(ordering: .relaxed) }

    private func serve(_ client: Int32) {
        defer { Glibc.close(client) }
        var received: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            while let length = Self.length(ofRequestIn: received) {
                received.removeFirst(length)
                requests.add(1, ordering: .relaxed)
                guard send(client, response, response.count, Int32(MSG_NOSIGNAL)) == response.count else { return }
            }
            let count = recv(client, &buffer, buffer.count, 0)
            guard count > 0 else { return }
            received += buffer[..<count]
        }
    }

    /// The length of the first request, if it is complete.
    private static func length(ofRequestIn bytes: [UInt8]) -> Int? {
        let text = String(decoding: bytes, as: UTF8.self)
        guard let end = text.range(of: "\r\n\r\n") else { return nil }
        let head = text[..<end.upperBound]
        let body =
            head.lowercased().split(separator: "\r\n").first { $0.hasPrefix("content-length:") }
            .flatMap { Int($0.dropFirst("content-length:".count).drop { $0 == " " }) } ?? 0
        let length = head.utf8.count + body
        return bytes.count >= length ? length : nil
    }
}
