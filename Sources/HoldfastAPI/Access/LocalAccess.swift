import Definitions
import HTTPServer
import HoldfastCore

/// The requests that a server without tokens accepts. It listens on loopback only, and every caller is an admin. But
/// pages of other sites can make a browser on this host send requests, which must be refused.
struct LocalAccess: Sendable {
    let hosts: AllowedHosts
    let origins: AllowedOrigins?

    /// - Returns: 403 for a request under a host name that another site may control (DNS rebinding), and for a request
    ///   by a page of another site that would change something. Clients other than browsers do not send
    ///   `Sec-Fetch-Site`.
    func refusal(of request: borrowing Request, to route: APIRoute) -> Problem? {
        if let host = request.field("host"), !hosts.admits(host) {
            return Problem(
                .forbidden,
                "without access tokens `Host` must be localhost, an IP address, or a name in --allowed-hosts; got "
                    + "'\(host.shortened(to: 255))'")
        }
        guard route.changesState ?? !route.method.isSafe, request.field("sec-fetch-site") == "cross-site" else {
            return nil
        }
        // Pages of the origins that the operator has listed may call client routes.
        if route.scope.isForPages, let origins, let origin = request.field("origin"), origins.allows(origin) {
            return nil
        }
        return Problem(
            .forbidden,
            "without access tokens a page of another site must not change anything; its origin must be in "
                + "--cors-origins, for client routes only")
    }
}

/// The host names under which a server without tokens may be called (`--allowed-hosts`). `localhost`, names below it
/// and IP addresses are always allowed, because no site can control them.
public struct AllowedHosts: Sendable {
    private let names: Set<String>

    public init() {
        names = []
    }

    /// Parses a list such as `holdfast.internal,build-7`.
    ///
    /// - Returns: `nil` if an element is not a host name, for example because it has a port.
    public init?(_ list: String) {
        let parts = list.split(separator: ",", omittingEmptySubsequences: false).map { part in
            String(part.filter { $0 != " " }).lowercased()
        }
        guard parts.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy(Self.isOfName) }) else { return nil }
        names = Set(parts)
    }

    private static func isOfName(_ byte: UInt8) -> Bool {
        byte &- UInt8(ascii: "0") < 10 || byte &- UInt8(ascii: "a") < 26 || "-._".utf8.contains(byte)
    }

    /// - Parameter host: the field `Host`, with or without a port (RFC 9110 §7.2).
    func admits(_ host: String) -> Bool {
        // A fast path for the usual names, because this runs for each request. An IPv6 address is in brackets.
        let isUsual = host.utf8.withContiguousStorageIfAvailable { bytes in
            let end = bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.count
            return bytes.first == UInt8(ascii: "[") || end == 0
                || Self.usualNames.contains { $0.count == end && bytes[..<end].elementsEqual($0) }
        }
        return isUsual == true || admits(name: host.prefix { $0 != ":" }.lowercased())
    }

    private static let usualNames = [Array("localhost".utf8), Array("127.0.0.1".utf8)]

    private func admits(name: String) -> Bool {
        var name = name
        if name.hasSuffix(".") { name.removeLast() }
        return name.isEmpty || name == "localhost" || name.hasSuffix(".localhost") || names.contains(name)
            || IPAddress(name) != nil
    }
}
