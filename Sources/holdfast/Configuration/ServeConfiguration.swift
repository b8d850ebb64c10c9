import HTTPServer
import HoldfastAPI
import Logging
import Storage
import StorageEdge

/// The configuration of `holdfast serve`. Defaults are defined here, and in the types of its parts: the HTTP server,
/// the store and the services. ``ServeCommand`` replaces them by the settings that are given.
struct ServeConfiguration: Sendable {
    var http = HTTPServer.Configuration()
    var store = StoreSettings()
    var services = Services.Options()
    var database = DatabaseLocation("./holdfast.db")
    /// The number of connections of each event loop to PostgreSQL. With 2, lookups continue during a commit.
    var databaseConnections = 2
    /// The time in seconds for which PostgreSQL may not respond before the connection is closed.
    var databaseTimeout = 10.0
    /// Whether PostgreSQL is reached through a pooler in transaction mode.
    var databasePooler = false
    /// The size of the caches of all event loops together. Each event loop has a cache of its own.
    var cacheSize = ByteCount(bytes: 64 << 20)
    /// The size at which the write-ahead log is copied into the database.
    var checkpointSize = ByteCount(bytes: 16 << 20)
    /// How long a write waits while another process locks the database, in seconds.
    var lockTimeout = 2.0
    /// The upstream of an edge; `nil` for a server that is not an edge.
    var upstream: EdgeConfiguration?
    /// The file with the token for the upstream, which is read again at SIGHUP.
    var upstreamTokenFile: String?
    /// The collector that gets the spans of requests; `nil` for none.
    var traces: TraceCollector?
    /// The file of access tokens; `nil` if there are none.
    var tokensFile: String?
    /// The identity provider that signs people in; `nil` for none.
    var identity: IdentitySource?
    /// The number of people that a change of a running experiment requires: 1 or 2.
    var approvals = 1
    /// A datafile, or a directory with files `*.json`, to activate at the start.
    var datafile: String?
    /// Whether datafiles may have the ids of other projects' experiments.
    var sharesIDs = false
    /// The time in seconds for which requests are still accepted after `/readyz` has begun to fail.
    var shutdownDelay = 0.0
    /// The time limit in seconds of requests in flight at shutdown.
    var shutdownTimeout = 10.0
    var logFormat = LogFormat.auto
    var logLevel = Logger.Level.info
}

/// The setting of `--log-format`.
enum LogFormat: String, Setting, CaseIterable {
    /// Text if standard error is a terminal, otherwise JSON.
    case auto, json, text

    init?(setting: String) {
        self.init(rawValue: setting)
    }

    static let form = "auto, json or text"
}

// MARK: - Types of other modules as settings

extension AllowedOrigins: Setting {
    init?(setting: String) {
        self.init(setting)
    }

    static let form = "* or a list of origins such as https://shop.example,http://localhost:3000, without paths"
}

extension AllowedHosts: Setting {
    init?(setting: String) {
        self.init(setting)
    }

    static let form = "a list of names of hosts such as holdfast.internal,build-7, without ports"
}

extension TrustedProxies: Setting {
    init?(setting: String) {
        var ranges: [AddressRange] = []
        for part in setting.split(separator: ",") {
            guard let range = AddressRange(part.filter { $0 != " " }) else { return nil }
            ranges.append(range)
        }
        self.init(ranges)
    }

    static let form = "a list of addresses and networks such as 10.0.0.0/8,192.0.2.7,2001:db8::/32"
}

extension Logger.Level: Setting {
    init?(setting: String) {
        self.init(rawValue: setting)
    }

    static let form = "trace, debug, info, notice, warning, error or critical"
}

extension EdgeConfiguration.OfflineEnrollment: Setting {
    init?(setting: String) {
        self.init(rawValue: setting)
    }

    static let form = "hash or refuse"
}
