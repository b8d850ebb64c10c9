import Glibc

/// An IPv4 or IPv6 address without a port. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`), as a dual-stack socket
/// reports it, equals the IPv4 address.
public struct IPAddress: Sendable, Hashable {
    /// The two halves of the IPv6 address, or of `::ffff:a.b.c.d`.
    fileprivate let high: UInt64
    fileprivate let low: UInt64

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

    /// Takes the address of a socket; `nil` for another address family.
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

/// A range of addresses in CIDR notation, such as `10.0.0.0/8`. An address without a prefix length is a range of one.
public struct AddressRange: Sendable, Equatable {
    private let first: IPAddress
    /// The prefix length out of 128 bits; IPv4 addresses have 96 bits before their own.
    private let length: Int

    /// Parses `10.0.0.0/8`, `2001:db8::/32` or a single address. The bits beyond the prefix length do not matter.
    public init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = parts.first.flatMap({ IPAddress($0) }) else { return nil }
        let skipped = address.isIPv4 && !text.contains(":") ? 96 : 0
        var length = 128
        if parts.count > 1 {
            guard parts[1].utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
                let number = Int(parts[1]), number <= 128 - skipped
            else { return nil }
            length = skipped + number
        }
        first = address
        self.length = length
    }

    /// Whether an address is in the range. IPv4 addresses are in IPv4 ranges only: `::/0` contains none.
    public func contains(_ address: IPAddress) -> Bool {
        guard address.isIPv4 == first.isIPv4 else { return false }
        // Shifting by 64 bits gives an empty mask.
        let high = ~UInt64(0) << UInt64(max(0, 64 - length))
        let low = ~UInt64(0) << UInt64(max(0, min(64, 128 - length)))
        return (address.high ^ first.high) & high == 0 && (address.low ^ first.low) & low == 0
    }
}

/// The proxies whose `X-Forwarded-For` is trusted.
public struct TrustedProxies: Sendable, Equatable {
    public let ranges: [AddressRange]

    public init(_ ranges: [AddressRange] = []) {
        self.ranges = ranges
    }

    /// Returns the client of a request: the last address that is not a trusted proxy. Clients may have forged the
    /// addresses before it.
    ///
    /// - Parameter forwardedFor: the values of `X-Forwarded-For`; each proxy appends the address of its client.
    public func client(of peer: IPAddress, forwardedFor: String?) -> IPAddress {
        var client = peer
        var rest = forwardedFor?[...] ?? ""
        while !rest.isEmpty, ranges.contains(where: { $0.contains(client) }) {
            let start = rest.lastIndex(of: ",").map { rest.index(after: $0) } ?? rest.startIndex
            guard let address = Self.address(rest[start...]) else { break }
            client = address
            rest = rest[..<start].dropLast()
        }
        return client
    }

    /// Parses an element of `X-Forwarded-For`. Some proxies append a port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
    private static func address(_ element: Substring) -> IPAddress? {
        var text = element.drop { $0 == " " || $0 == "\t" }
        while text.last == " " || text.last == "\t" { text.removeLast() }
        if text.first == "[", let end = text.firstIndex(of: "]") {
            text = text[text.index(after: text.startIndex)..<end]
        } else if let colon = text.firstIndex(of: ":"), colon == text.lastIndex(of: ":") {
            text = text[..<colon]
        }
        return IPAddress(text)
    }
}
