import ProcessTestSupport

/// PgBouncer in transaction mode in front of a server of the tests. It ends with the last reference, or with the process.
///
/// It refuses to run as root: then it runs as the user `postgres`.
public final class TestPooler: Sendable {
    public let port: UInt16
    private let supervisor: ChildProcess

    /// One in front of ``PostgreSQLServer/shared``.
    public static let shared = Result { try TestPooler(of: PostgreSQLServer.shared.get()) }

    /// Starts it and blocks until it accepts connections.
    public init(of server: PostgreSQLServer) throws {
        port = try PostgreSQLServer.freePort()
        let directory = "\(server.directory)-pooler-\(port)"
        supervisor = try ChildProcess(
            "/bin/sh", ["-c", Self.script, "sh", directory, "\(port)", "\(server.port)"], input: nil)
        guard supervisor.output.line(0) == "ready" else {
            throw PostgreSQLServer.NotStarted(
                description: "pgbouncer did not start; is its Debian package installed? See \(directory)/log")
        }
    }

    deinit {
        supervisor.closeInput()
        supervisor.wait()
    }

    private static let script = """
        directory=$1 port=$2 server=$3
        as_user() {
            if [ "$(id -u)" = 0 ]; then exec setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else exec "$@"; fi
        }
        rm -rf "$directory" && mkdir -m 755 "$directory" && cd "$directory" || exit 1
        cat > pgbouncer.ini << END
        [databases]
        * = host=127.0.0.1 port=$server user=postgres
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = $port
        unix_socket_dir =
        auth_type = any
        pool_mode = transaction
        max_client_conn = 2000
        default_pool_size = 8
        server_login_retry = 1
        END
        programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
        ( as_user "$(command -v pgbouncer || echo /usr/sbin/pgbouncer)" pgbouncer.ini ) > log 2>&1 &
        pooler=$!
        until "$programs/pg_isready" -q -h 127.0.0.1 -p "$port" -U postgres; do
            kill -0 $pooler 2> /dev/null || exit 1
            sleep 0.02
        done
        echo ready
        read -r _
        # Nobody may read what the shell says of it.
        exec 2> /dev/null
        kill -KILL $pooler
        wait $pooler
        cd / && rm -rf "$directory"
        """
}
