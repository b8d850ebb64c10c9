import Glibc

/// How many files and sockets the process may have open at once.
enum DescriptorLimit {
    /// Beside its connections the server has the database, its event loops and its log open.
    private static let reserve = 200

    /// Raises the soft limit as far as the connections need it and the hard limit allows.
    ///
    /// - Returns: what is lacking, if the connections do not fit.
    static func raise(for connections: Int) -> String? {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return nil }
        let needed = rlim_t(connections + reserve)
        if limit.rlim_cur < needed {
            limit.rlim_cur = min(needed, limit.rlim_max)
            setrlimit(resource, &limit)
            getrlimit(resource, &limit)
        }
        guard limit.rlim_cur < needed else { return nil }
        let room = max(0, Int(clamping: limit.rlim_cur) - reserve)
        return "\(connections) connections need a limit of \(needed) open files; it is \(limit.rlim_cur), enough for \(room): "
            + "raise it (ulimit -n), or lower --max-connections"
    }
}
