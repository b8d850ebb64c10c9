import CPostgreSQL

/// A connection string of libpq.
public struct ConnectionString: Sendable {
    private let text: String

    public init(_ text: String) {
        self.text = text
    }

    var isWellFormed: Bool { parsed != nil }

    /// Whether it has a password. `true` for a malformed string, which may contain one.
    public var hasPassword: Bool { parsed.map { $0["password"] != nil } ?? true }

    /// The settings by keyword; `nil` if the string is malformed.
    private var parsed: [String: String]? {
        guard let options = PQconninfoParse(text, nil) else { return nil }
        defer { PQconninfoFree(options) }
        var values: [String: String] = [:]
        var option = options
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val { values[String(cString: keyword)] = String(cString: value) }
            option += 1
        }
        return values
    }

    /// Hosts, ports and database, for logs; neither user name nor password.
    public var withoutSecrets: String {
        guard let values = parsed else { return "postgresql://(malformed)" }
        let hosts = (values["host"] ?? values["hostaddr"] ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let ports = (values["port"] ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let servers = hosts.enumerated().map { index, host in
            let port = ports.count == hosts.count ? ports[index] : ports.first ?? ""
            return port.isEmpty ? String(host) : "\(host):\(port)"
        }
        return "postgresql://\(servers.joined(separator: ","))/\(values["dbname"] ?? "")"
    }
}
