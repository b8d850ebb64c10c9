import CPostgreSQL
import Dispatch
import Foundation
import Synchronization

/// A database of one test. It is dropped with the last reference.
public final class TestDatabase: Sendable {
    /// What kind of database it is, and how it is reached.
    public enum Kind: String, CaseIterable, Sendable {
        /// PostgreSQL, directly.
        case postgreSQL = "postgresql"
        /// Through PgBouncer in transaction mode.
        case pooled = "pgbouncer"
        /// With serializable transactions by default.
        case serializable
        /// Distributed over two workers by the extension `citus`.
        case citus

        /// The kind that `HOLDFAST_TEST_DATABASE` in the environment names, for all tests that leave it open.
        public static let chosen: Kind? = {
            guard let name = ProcessInfo.processInfo.environment["HOLDFAST_TEST_DATABASE"] else { return nil }
            // Otherwise tests would pass that have tested something else.
            guard let kind = Kind(rawValue: name) else {
                fatalError("HOLDFAST_TEST_DATABASE must be one of \(allCases.map(\.rawValue)); got '\(name)'")
            }
            return kind
        }()

        /// The kind that was chosen, but without a pooler.
        public static var direct: Kind {
            switch chosen {
            case .pooled, nil: .postgreSQL
            case let kind?: kind
            }
        }
    }

    public let server: PostgreSQLServer
    public let kind: Kind
    public let name: String
    private let pooler: TestPooler?

    /// - Parameters:
    ///   - kind: by default the one that was chosen in the environment, or else PostgreSQL itself.
    ///   - server: a server of the test's own, in place of the one that tests share.
    public init(_ kind: Kind? = nil, on server: PostgreSQLServer? = nil) throws {
        let kind = kind ?? (server.map { $0.isCitus ? .citus : .postgreSQL } ?? Kind.chosen ?? .postgreSQL)
        let shared = kind == .citus ? PostgreSQLServer.sharedCluster : PostgreSQLServer.shared
        self.server = try server ?? shared.get()
        self.kind = kind
        name = "test_\(UInt64.random(in: 0...UInt64.max))"
        switch kind {
        case .pooled: pooler = try server.map { try TestPooler(of: $0) } ?? TestPooler.shared.get()
        default: pooler = nil
        }
        try onAll("CREATE DATABASE \(name)\(kind == .citus ? " TEMPLATE template_citus" : "")")
        if kind == .serializable {
            try execute("ALTER DATABASE \(name) SET default_transaction_isolation = 'serializable'")
        }
    }

    deinit {
        try? onAll("DROP DATABASE \(name) WITH (FORCE)")
    }

    /// Executes a statement on each server that has a part of the database, on all at once.
    private func onAll(_ sql: String) throws {
        let failures = Mutex<[any Error]>([])
        DispatchQueue.concurrentPerform(iterations: server.isCitus ? 3 : 1) { [server] node in
            do {
                try SQLConnection(server.url("postgres", port: server.port + UInt16(node))).execute(sql)
            } catch {
                failures.withLock { $0.append(error) }
            }
        }
        if let first = failures.withLock(\.first) { throw first }
    }

    /// For Holdfast.
    public var url: String { server.url(name, port: pooler?.port ?? server.port) }

    /// Whether ``url`` leads through a pooler.
    public var isPooled: Bool { pooler != nil }

    /// Executes statements over a connection of its own, past the pooler.
    ///
    /// - Returns: the rows of the last one.
    @discardableResult
    public func execute(_ sql: String) throws -> [[String?]] {
        try SQLConnection(server.url(name)).execute(sql)
    }
}

/// A connection of a test to a database, beside the store.
public final class SQLConnection {
    private let pointer: OpaquePointer

    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    public init(_ url: String) throws {
        guard let pointer = PQconnectdb(url) else { throw Failure(description: "no memory") }
        self.pointer = pointer
        guard PQstatus(pointer) == CONNECTION_OK else {
            throw Failure(description: String(cString: PQerrorMessage(pointer)))
        }
        cpostgresql_ignore_notices(pointer)
    }

    deinit {
        PQfinish(pointer)
    }

    @discardableResult
    public func execute(_ sql: String) throws -> [[String?]] {
        let result = PQexec(pointer, sql)
        defer { PQclear(result) }
        guard [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(PQresultStatus(result)) else {
            throw Failure(description: String(cString: PQerrorMessage(pointer)))
        }
        return (0..<PQntuples(result)).map { row in
            (0..<PQnfields(result)).map { column in
                PQgetisnull(result, row, column) == 1 ? nil : String(cString: PQgetvalue(result, row, column))
            }
        }
    }
}
