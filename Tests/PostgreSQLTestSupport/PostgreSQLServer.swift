import Foundation
public import Glibc
import ProcessTestSupport
import Synchronization

/// A PostgreSQL server of the tests' own, in a temporary directory. It listens on a socket there, and on a port that the
/// kernel chose. It ends with the last reference, or with the process.
///
/// PostgreSQL refuses to run as root: then it runs as the user `postgres`, which Debian's package makes.
public final class PostgreSQLServer: @unchecked Sendable {
    // Safe: what changes is behind a lock.
    public let directory: String
    public let port: UInt16
    /// Whether it is the coordinator of a Citus cluster; its two workers listen on the next ports.
    public let isCitus: Bool
    private let supervisor: ChildProcess
    /// Number of lines of the supervisor that were read.
    private let lines = Mutex(1)

    /// One server for all tests that do not need one of their own. It does not sync: nobody cuts its power.
    public static let shared = Result { try PostgreSQLServer(["fsync=off", "full_page_writes=off"]) }

    /// One Citus cluster for all tests that do not need one of their own.
    public static let sharedCluster = Result {
        try PostgreSQLServer(["fsync=off", "full_page_writes=off"], isCitus: true)
    }

    /// Whether the extension `citus` is installed, of which Debian has no package.
    public static let hasCitus = FileManager.default.fileExists(atPath: "/usr/lib/postgresql/15/lib/citus.so")

    public struct NotStarted: Error, CustomStringConvertible {
        public let description: String
    }

    /// Starts a server and blocks until it accepts connections.
    ///
    /// - Parameters:
    ///   - settings: lines for its configuration.
    ///   - isCitus: whether to start a Citus cluster.
    public init(_ settings: [String] = [], isCitus: Bool = false) throws {
        self.isCitus = isCitus
        // Not one that the kernel may give to a client while the server is down.
        port = try Self.freePort(andNext: isCitus ? 2 : 1)
        directory = "\(Self.root)/holdfast-postgresql-\(getpid())-\(port)"
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "postgresql-server").path
        let arguments = [script, directory, "\(port)", isCitus ? "2" : "0"]
        supervisor = try ChildProcess("/bin/sh", arguments + settings, input: nil)
        guard supervisor.output.line(0) == "ready" else {
            throw NotStarted(description: "the server did not start; see \(directory)/log")
        }
    }

    deinit {
        stop()
    }

    /// Memory, if there is enough: each test makes a database of some 300 files, and deletes it.
    private static let root: String = {
        var memory = statvfs()
        let isLarge = statvfs("/dev/shm", &memory) == 0 && memory.f_bavail * memory.f_frsize > 4 << 30
        return isLarge ? "/dev/shm" : "/tmp"
    }()

    /// Ends the server at once, as it does when its host shuts down, and removes its directory.
    public func stop() {
        supervisor.closeInput()
        supervisor.wait()
    }

    /// Kills all processes of a server, as if the power of its host had failed, and starts it again: it recovers.
    ///
    /// - Parameter data: the folder of its data, see ``processID(of:)``.
    public func crash(_ data: String = "data") throws {
        try lines.withLock { lines in
            for command in ["kill", "start"] {
                try supervisor.write("\(command) \(data)\n")
                let response = supervisor.output.line(lines)
                lines += 1
                guard response == "done" else {
                    throw NotStarted(
                        description: "\(command) \(data): \(response ?? "no response"); see \(directory)/log")
                }
            }
        }
    }

    /// - Parameter more: how many ports after it must be free, too.
    public static func freePort(andNext more: UInt16 = 0) throws -> UInt16 {
        while true {
            // The kernel gives ports above these to clients, at any moment.
            let port = more > 0 ? UInt16.random(in: 15_000..<30_000) : try freePort(0)
            let isFree =
                port < .max - more && (0...more).allSatisfy { (try? freePort(port + $0)) != nil }
            if isFree { return port }
        }
    }

    /// - Parameter wanted: 0 for any.
    private static func freePort(_ wanted: UInt16) throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { throw NotStarted(description: "no socket is left") }
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = wanted.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) == 0 && getsockname(descriptor, address, &length) == 0
            }
        }
        guard isBound else { throw NotStarted(description: "no port is left, or not \(wanted)") }
        return UInt16(bigEndian: address.sin_port)
    }

    /// The process id of the server.
    public var processID: pid_t? { processID(of: "data") }

    /// - Parameter data: the folder of its data; `worker1` and `worker2` are those of a Citus cluster.
    public func processID(of data: String) -> pid_t? {
        let file = try? String(contentsOfFile: "\(directory)/\(data)/postmaster.pid", encoding: .utf8)
        return file?.split(separator: "\n").first.flatMap { pid_t($0) }
    }

    public func url(_ database: String) -> String {
        url(database, port: port)
    }

    func url(_ database: String, port: UInt16) -> String {
        "postgresql://postgres@127.0.0.1:\(port)/\(database)"
    }
}
