import Glibc
import HTTPServer

/// The limit of open files and sockets of the process.
struct DescriptorLimit {
    /// The maximum number of open connections. The descriptors for everything else are reserved: without a free
    /// descriptor the process cannot wait for a timer, and Dispatch ends it.
    let connections: Int
    /// A warning if ``connections`` is less than configured; otherwise `nil`.
    let shortage: String?

    /// The minimum number of connections with which a server starts.
    private static let minimumConnections = 16

    /// Returns the number of descriptors for the database, the event loops, Dispatch, the log, and connections that are
    /// being refused: 100, and 8 for each event loop, but at least 200.
    private static func reserve(_ http: HTTPServer.Configuration) -> Int {
        max(200, 100 + 8 * http.eventLoops)
    }

    /// Raises the soft limit to the number that the connections require, at most to the hard limit.
    ///
    /// - Throws: ``ConfigurationError`` if the limit is too low for a server.
    init(raisingFor http: HTTPServer.Configuration) throws {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        let wanted = http.limits.connections
        let reserve = Self.reserve(http)
        // A limit that cannot be read is not checked.
        guard getrlimit(resource, &limit) == 0 else {
            connections = wanted
            shortage = nil
            return
        }
        let needed = rlim_t(wanted + reserve)
        if limit.rlim_cur < needed {
            limit.rlim_cur = min(needed, limit.rlim_max)
            setrlimit(resource, &limit)
            getrlimit(resource, &limit)
        }
        guard limit.rlim_cur < needed else {
            connections = wanted
            shortage = nil
            return
        }
        connections = max(0, Int(clamping: limit.rlim_cur) - reserve)
        let minimum = min(wanted, Self.minimumConnections)
        guard connections >= minimum else {
            throw ConfigurationError(
                reason: Failure(
                    "the limit of open files must be at least \(reserve + minimum); it is \(limit.rlim_cur): raise it "
                        + "(ulimit -n)"))
        }
        shortage =
            "\(wanted) connections need a limit of \(needed) open files; it is \(limit.rlim_cur), enough for "
            + "\(connections): raise it (ulimit -n), or lower --max-connections"
    }
}
