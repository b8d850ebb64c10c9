import Definitions
import HTTPServer
import HoldfastCore

/// Which requests a server without tokens takes. It listens on loopback only, and every caller is an admin; but a browser on
/// this host also sends what pages of other sites make it send.
struct LocalAccess: Sendable {
    let hosts: AllowedHosts
    let origins: AllowedOrigins?

    /// - Returns: 403 for a request under a name that a site may have given to this host (DNS rebinding), and for one
    ///   with which another site's page would change something. What is no browser sends no `Sec-Fetch-Site`.
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
        // The pages that the operator lists may call client routes.
        if route.scope.isForPages, let origins, let origin = request.field("origin"), origins.allows(origin) {
            return nil
        }
        return Problem(
            .forbidden,
            "without access tokens a page of another site must not change anything; its origin must be in "
                + "--cors-origins, for client routes only")
    }
}

/// The names of hosts under which a server without tokens may be called (`--allowed-hosts`), besides `localhost`, names
/// below it, and IP addresses, which no site can point elsewhere.
public struct AllowedHosts: Sendable {
    private let names: Set<String>

    public init() {
        names = []
    }

    /// Parses a list such as `holdfast.internal,build-7`.
    ///
    /// - Returns: `nil` if an element is no name of a host; a port is none of its parts.
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
        // This is asked for each request. An IPv6 address is in brackets.
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
