import CPostgreSQL

/// A connection string of libpq (<https://www.postgresql.org/docs/15/libpq-connect.html#LIBPQ-CONNSTRING>). libpq
/// itself parses the string.
public struct ConnectionString: Sendable {
    private let text: String

    public init(_ text: String) {
        self.text = text
    }

    /// Whether libpq is installed, which all connections need.
    public static var isLibraryInstalled: Bool { cpostgresql_is_available() == 1 }

    var isWellFormed: Bool { parsed != nil }

    /// Whether the string has a password. `true` for a malformed string, because it may contain a password.
    public var hasPassword: Bool { parsed.map { $0["password"] != nil } ?? true }

    /// The settings by keyword; `nil` if the string is malformed.
    private var parsed: [String: String]? {
        guard Self.isLibraryInstalled, let options = PQconninfoParse(text, nil) else { return nil }
        defer { PQconninfoFree(options) }
        var values: [String: String] = [:]
        var option = options
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val { values[String(cString: keyword)] = String(cString: value) }
            option += 1
        }
        return values
    }

    /// Whether the string demands that connecting has no time-out (`connect_timeout=0`). The store overrides this,
    /// because connecting to a server that does not respond would block until the kernel gives up.
    var waitsForever: Bool {
        guard let limit = parsed?["connect_timeout"] else { return false }
        return (Int(limit) ?? 0) <= 0
    }

    /// One of the servers to try.
    struct Host {
        /// The value of `host`; `nil` if it is not set.
        var name: String?
        /// The value of `hostaddr`; `nil` if it is not set.
        var address: String?
        /// The value of `port`; `nil` if it is not set.
        var port: String?

        /// The settings that restrict a connection string to this server; none if the string has only one server.
        var settings: [(String, String)] {
            [("host", name), ("hostaddr", address), ("port", port)].compactMap { name, value in
                value.map { (name, $0) }
            }
        }
    }

    /// The servers to try, at least one.
    ///
    /// A single host without settings makes libpq use the string unchanged. The result is such a host if the string
    /// names only one server, if libpq must choose the server (`prefer-standby`), or if the string is malformed.
    var hosts: [Host] {
        guard let values = parsed, values["target_session_attrs"] != "prefer-standby" else { return [Host()] }
        let servers = Self.servers(values)
        return servers.count > 1 ? servers : [Host()]
    }

    /// Returns the servers that the lists `host`, `hostaddr` and `port` name.
    private static func servers(_ values: [String: String]) -> [Host] {
        func list(_ keyword: String) -> [String] {
            values[keyword].map { $0.split(separator: ",", omittingEmptySubsequences: false).map(String.init) } ?? []
        }
        func element(_ list: [String], _ index: Int) -> String? {
            index < list.count && !list[index].isEmpty ? list[index] : nil
        }
        let names = list("host")
        let addresses = list("hostaddr")
        let ports = list("port")
        return (0..<max(names.count, addresses.count)).map { index in
            // An empty port means libpq's default. It must be set, because otherwise the list of ports of the string
            // would apply.
            let port = ports.count > 1 ? element(ports, index) ?? "5432" : ports.first
            return Host(name: element(names, index), address: element(addresses, index), port: port)
        }
    }

    /// The hosts, ports and database without user name and password, for logs.
    public var withoutSecrets: String {
        guard let values = parsed else { return "postgresql://(malformed)" }
        let servers = Self.servers(values).map { server in
            (server.name ?? server.address ?? "") + (server.port.map { ":\($0)" } ?? "")
        }
        return "postgresql://\(servers.joined(separator: ","))/\(values["dbname"] ?? "")"
    }
}
