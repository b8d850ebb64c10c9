import HTTPServer
import HoldfastAPI
import Logging
import Storage
import StorageEdge

/// The configuration of `holdfast serve`. The defaults are here, and in the parts where they take effect.
struct ServeConfiguration: Sendable {
    var http = HTTPServer.Configuration()
    var store = StoreSettings()
    var services = Services.Options()
    var database = DatabaseLocation("./holdfast.db")
    /// The number of connections of each event loop to PostgreSQL. With 2, lookups go on during a commit.
    var databaseConnections = 2
    /// How long PostgreSQL may take for an exchange before the connection is closed, in seconds.
    var databaseTimeout = 10.0
    /// Whether PostgreSQL is reached through a pooler in transaction mode.
    var databasePooler = false
    /// Shared by all event loops.
    var cacheSize = ByteCount(bytes: 64 << 20)
    /// The size at which the write-ahead log is copied into the database.
    var checkpointSize = ByteCount(bytes: 16 << 20)
    /// How long a write waits while another process locks the database, in seconds.
    var lockTimeout = 2.0
    /// Whose copy the server serves; `nil` if the database is its own.
    var upstream: EdgeConfiguration?
    /// The file of its token, which is read again at SIGHUP.
    var upstreamTokenFile: String?
    /// Who gets the spans of requests; `nil` for nobody.
    var traces: TraceCollector?
    var tokensFile: String?
    /// Who signs people in; `nil` for nobody.
    var identity: IdentitySource?
    /// How many people a change of a running experiment needs: 1 or 2.
    var approvals = 1
    /// A file, or a directory of `*.json`.
    var datafile: String?
    /// Whether datafiles may have the ids of other projects' experiments.
    var sharesIDs = false
    /// How long requests are still served after `/readyz` fails, in seconds.
    var shutdownDelay = 0.0
    /// How long requests in flight may take at shutdown, in seconds.
    var shutdownTimeout = 10.0
    var logFormat = LogFormat.auto
    var logLevel = Logger.Level.info
}

enum LogFormat: String, Setting, CaseIterable {
    /// Text on a terminal, else JSON.
    case auto, json, text

    init?(setting: String) {
        self.init(rawValue: setting)
    }

    static let form = "auto, json or text"
}

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
