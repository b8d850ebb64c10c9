/// A range of addresses in CIDR notation, such as `10.0.0.0/8`. An address without a prefix length is a range of one.
public struct AddressRange: Sendable, Equatable {
    private let first: IPAddress
    /// The number of leading bits, of 128, in which an address must equal ``first``. For an IPv4 range it includes
    /// ``mappedPrefixLength``.
    private let prefixLength: Int

    /// The number of bits before the IPv4 address in `::ffff:a.b.c.d`.
    private static let mappedPrefixLength = 96

    /// Parses `10.0.0.0/8`, `2001:db8::/32` or a single address. The bits beyond the prefix length do not matter.
    public init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = parts.first.flatMap({ IPAddress($0) }) else { return nil }
        // The prefix length of a mapped address in IPv6 notation, `::ffff:10.0.0.0/104`, already includes the 96 bits.
        let isIPv4Notation = address.isIPv4 && !text.contains(":")
        let bitsBefore = isIPv4Notation ? Self.mappedPrefixLength : 0
        var prefixLength = 128
        if parts.count > 1 {
            guard parts[1].utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
                let number = Int(parts[1]), number <= 128 - bitsBefore
            else { return nil }
            prefixLength = bitsBefore + number
        }
        first = address
        self.prefixLength = prefixLength
    }

    /// Whether an address is in the range. IPv4 addresses are in IPv4 ranges only: `::/0` contains none.
    public func contains(_ address: IPAddress) -> Bool {
        guard address.isIPv4 == first.isIPv4 else { return false }
        // Shifting by 64 bits gives an empty mask.
        let highMask = ~UInt64(0) << UInt64(max(0, 64 - prefixLength))
        let lowMask = ~UInt64(0) << UInt64(max(0, min(64, 128 - prefixLength)))
        return (address.high ^ first.high) & highMask == 0 && (address.low ^ first.low) & lowMask == 0
    }
}

/// The proxies whose `X-Forwarded-For` is trusted.
public struct TrustedProxies: Sendable, Equatable {
    public let ranges: [AddressRange]

    public init(_ ranges: [AddressRange] = []) {
        self.ranges = ranges
    }

    /// Returns the address of the client that sent a request.
    ///
    /// Each proxy appends the address of its own client to `X-Forwarded-For`. So this method starts at the peer and
    /// goes back through the field, from right to left, as long as the address is that of a trusted proxy. It ignores
    /// the remaining addresses, because a client may have forged them.
    ///
    /// - Parameters:
    ///   - peer: the address at the other end of the connection.
    ///   - forwardedFor: the values of `X-Forwarded-For`, joined by commas; `nil` if the request has none.
    public func client(of peer: IPAddress, forwardedFor: String?) -> IPAddress {
        var client = peer
        var rest = forwardedFor?[...] ?? ""
        while !rest.isEmpty, ranges.contains(where: { $0.contains(client) }) {
            let start = rest.lastIndex(of: ",").map { rest.index(after: $0) } ?? rest.startIndex
            guard let address = Self.parse(element: rest[start...]) else { break }
            client = address
            rest = rest[..<start].dropLast()
        }
        return client
    }

    /// Parses an element of `X-Forwarded-For`. Some proxies append a port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
    private static func parse(element: Substring) -> IPAddress? {
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
