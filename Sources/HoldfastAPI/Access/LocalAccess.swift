import Definitions
import HTTPServer
import HoldfastCore

/// Protects a server without tokens from web pages. Such a server listens on loopback only, and every caller is an
/// admin. But a page of any site can make a browser on this host send requests to it, so these requests are refused.
struct LocalAccess: Sendable {
    let hosts: AllowedHosts
    let origins: AllowedOrigins?

    /// Returns 403 for a request that a page of another site may have caused; `nil` for other requests. Two kinds of
    /// requests are refused:
    ///
    /// - A request with a host name that another site may control, because the page of such a site could read the
    ///   response (DNS rebinding).
    /// - A request that would change something and that a browser marks as `Sec-Fetch-Site: cross-site`. Clients other
    ///   than browsers do not send this field.
    func refusal(of request: borrowing Request, to route: APIRoute) -> Problem? {
        if let host = request.field("host"), !hosts.admits(host) {
            return Problem(
                .forbidden,
                "without access tokens `Host` must be localhost, an IP address, or a name in --allowed-hosts; got "
                    + "'\(host.shortened(to: 255))'")
        }
        guard route.mayChangeState, request.field("sec-fetch-site") == "cross-site" else {
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
        guard parts.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy(Self.isHostNameByte) }) else { return nil }
        names = Set(parts)
    }

    /// Whether a byte may occur in a host name in lower case.
    private static func isHostNameByte(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
            || "-._".utf8.contains(byte)
    }

    /// Whether the server may be called under a host name.
    ///
    /// - Parameter host: the field `Host`, with or without a port (RFC 9110 §7.2).
    func admits(_ host: String) -> Bool {
        // A fast path for the usual names, because this runs for each request. An IPv6 address, which is in brackets,
        // and an empty name are admitted, too.
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
