import Glibc

/// An IPv4 or IPv6 address without a port. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`), as a dual-stack socket
/// reports it, equals the IPv4 address.
public struct IPAddress: Sendable, Hashable {
    /// The two halves of the IPv6 address, or of `::ffff:a.b.c.d`.
    let high: UInt64
    let low: UInt64

    public var isIPv4: Bool { high == 0 && low >> 32 == 0xFFFF }

    /// `::`
    public static let unspecified = IPAddress(in6_addr())

    private init(_ bytes: in6_addr) {
        high = withUnsafeBytes(of: bytes) { UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 0, as: UInt64.self)) }
        low = withUnsafeBytes(of: bytes) { UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self)) }
    }

    private init(_ bytes: in_addr) {
        high = 0
        low = 0xFFFF << 32 | UInt64(UInt32(bigEndian: bytes.s_addr))
    }

    /// Parses `192.0.2.1` or `2001:db8::1`.
    public init?(_ text: some StringProtocol) {
        // The C functions would stop at a NUL.
        guard !text.utf8.contains(0) else { return nil }
        var version4 = in_addr()
        var version6 = in6_addr()
        if inet_pton(AF_INET, String(text), &version4) == 1 {
            self.init(version4)
        } else if inet_pton(AF_INET6, String(text), &version6) == 1 {
            self.init(version6)
        } else {
            return nil
        }
    }

    /// Reads the address from a socket address; `nil` for a family other than IPv4 and IPv6.
    init?(_ storage: sockaddr_storage) {
        switch Int32(storage.ss_family) {
        case AF_INET: self.init(withUnsafeBytes(of: storage) { $0.loadUnaligned(as: sockaddr_in.self).sin_addr })
        case AF_INET6: self.init(withUnsafeBytes(of: storage) { $0.loadUnaligned(as: sockaddr_in6.self).sin6_addr })
        default: return nil
        }
    }
}

extension IPAddress: CustomStringConvertible {
    public var description: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        if isIPv4 {
            var bytes = UInt32(truncatingIfNeeded: low).bigEndian
            _ = inet_ntop(AF_INET, &bytes, &text, socklen_t(text.count))
        } else {
            var bytes = (high.bigEndian, low.bigEndian)
            _ = inet_ntop(AF_INET6, &bytes, &text, socklen_t(text.count))
        }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
