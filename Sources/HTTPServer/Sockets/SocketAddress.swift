import Glibc

/// An IPv4 or IPv6 address with a port.
public struct SocketAddress: Sendable, CustomStringConvertible {
    private var storage: sockaddr_storage
    private let length: socklen_t

    init(storage: sockaddr_storage, length: socklen_t) {
        self.storage = storage
        self.length = length
    }

    /// Resolves `HOST:PORT`. An IPv6 host is in brackets (`[::1]:8080`); with port 0 the kernel chooses one.
    ///
    /// - Throws: ``SocketAddressError`` if the text is malformed or the host is unknown.
    public init(resolving text: String) throws(SocketAddressError) {
        let (host, port) = try Self.split(text)
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_protocol = Int32(IPPROTO_TCP)
        hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0, let first = list, let address = first.pointee.ai_addr else {
            throw SocketAddressError(
                text: text, reason: String(cString: gai_strerror(code)), isTemporary: code == EAI_AGAIN)
        }
        defer { freeaddrinfo(first) }
        var storage = sockaddr_storage()
        withUnsafeMutableBytes(of: &storage) {
            $0.copyMemory(from: UnsafeRawBufferPointer(start: address, count: Int(first.pointee.ai_addrlen)))
        }
        self.init(storage: storage, length: first.pointee.ai_addrlen)
    }

    /// Splits `HOST:PORT`, and removes the brackets of an IPv6 host.
    private static func split(_ text: String) throws(SocketAddressError) -> (host: String, port: UInt16) {
        guard let colon = text.lastIndex(of: ":") else {
            throw SocketAddressError(text: text, reason: "the port is missing")
        }
        guard let port = UInt16(text[text.index(after: colon)...]) else {
            throw SocketAddressError(text: text, reason: "the port must be a number from 0 to 65535")
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            throw SocketAddressError(text: text, reason: "an IPv6 address must be in brackets, as in [::1]:8080")
        }
        guard !host.isEmpty else {
            throw SocketAddressError(text: text, reason: "the host is missing; 0.0.0.0 means every address")
        }
        return (String(host), port)
    }

    /// Passes the address to a system call.
    func withSockaddr<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withUnsafeBytes(of: storage) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { pointer in
                guard let base = pointer.baseAddress else { preconditionFailure("a value has an address") }
                return body(base, length)
            }
        }
    }

    var family: Int32 { Int32(storage.ss_family) }

    /// Whether only programs on this host can reach the address (127.0.0.0/8 or ::1).
    public var isLoopback: Bool {
        withUnsafeBytes(of: storage) { bytes in
            switch family {
            case AF_INET:
                return bytes.loadUnaligned(as: sockaddr_in.self).sin_addr.s_addr.bigEndian >> 24 == 127
            case AF_INET6:
                let address = bytes.loadUnaligned(as: sockaddr_in6.self).sin6_addr
                return withUnsafeBytes(of: address) { $0.dropLast().allSatisfy { $0 == 0 } && $0.last == 1 }
            default:
                return false
            }
        }
    }

    public var port: UInt16 {
        withUnsafeBytes(of: storage) { bytes in
            family == AF_INET6
                ? bytes.loadUnaligned(as: sockaddr_in6.self).sin6_port.bigEndian
                : bytes.loadUnaligned(as: sockaddr_in.self).sin_port.bigEndian
        }
    }

    /// `HOST:PORT` with a numeric host, in brackets if IPv6.
    public var description: String {
        var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let code = withSockaddr { address, length in
            getnameinfo(address, length, &host, socklen_t(host.count), nil, 0, NI_NUMERICHOST)
        }
        guard code == 0 else { return "?:\(port)" }
        let text = String(decoding: host.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        return family == AF_INET6 ? "[\(text)]:\(port)" : "\(text):\(port)"
    }
}

/// A listen address that cannot be used.
public struct SocketAddressError: Error, Sendable, CustomStringConvertible {
    /// The address as it was given.
    public let text: String
    public let reason: String
    /// Whether a later attempt may succeed: no name server responds now.
    public var isTemporary = false

    public var description: String { "the address to listen on must be HOST:PORT; got '\(text)': \(reason)" }
}
