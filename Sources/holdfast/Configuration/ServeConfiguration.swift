import HTTPServer
import HoldfastAPI
import Logging
import Storage

/// The configuration of `holdfast serve`, with the defaults.
struct ServeConfiguration: Sendable {
    var listen = "127.0.0.1:8080"
    var database = DatabaseLocation("./holdfast.db")
    /// The number of connections of each event loop to PostgreSQL. With 2, lookups go on during a commit.
    var databaseConnections = 2
    /// How long PostgreSQL may take for an exchange before the connection is closed.
    var databaseTimeout = Period(seconds: 10)
    /// Whether PostgreSQL is reached through a pooler in transaction mode.
    var databasePooler = false
    /// Whether all changes are refused, while the database is copied to another.
    var readOnly = false
    var tokensFile: String?
    /// The origins of pages that may call routes for clients; `nil` means none.
    var corsOrigins: AllowedOrigins?
    /// A file, or a directory of `*.json`.
    var datafile: String?
    var rules = ProfileRules()
    /// How long an entry of the audit log is kept.
    var auditRetention = Period(seconds: 400 * 86_400)
    /// How long goal events are kept; `nil` means forever.
    var eventRetention: Period?
    /// How many datafiles of one project are kept, including the active one.
    var datafileHistory = 100
    var eventLoops = HTTPServer.availableCores
    var reusePort = false
    /// Shared by all event loops.
    var cacheSize = ByteCount(bytes: 64 << 20)
    /// The size at which the write-ahead log is copied into the database.
    var checkpointSize = ByteCount(bytes: 16 << 20)
    /// How many writes may wait for a commit; more are refused with 503.
    var maxWaitingWrites = 10_000
    /// How long the oldest may wait before further writes are refused with 503.
    var maxWriteWait = Period(seconds: 5)
    /// How long a write waits while another process locks the database.
    var lockTimeout = Period(seconds: 2)
    var maxChangeStreams = 1_000
    /// Must be much shorter than the time-out for a handler without a response.
    var changeHeartbeat = Period(seconds: 15)
    var limits = Limits()
    /// How long requests are still served after `/readyz` fails.
    var shutdownDelay = Period(seconds: 0)
    var shutdownTimeout = Period(seconds: 10)
    var accessLog = false
    /// Whether `/console/` is left out.
    var noConsole = false
    /// The proxies whose `X-Forwarded-For` is trusted.
    var trustedProxies = TrustedProxies()
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
