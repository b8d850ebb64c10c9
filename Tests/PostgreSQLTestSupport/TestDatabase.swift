import CPostgreSQL
import Glibc

/// A database of one test. It is dropped with the last reference.
public final class TestDatabase: Sendable {
    public let server: PostgreSQLServer
    public let name: String

    public init(on server: PostgreSQLServer? = nil) throws {
        self.server = try server ?? PostgreSQLServer.shared.get()
        name = "test_\(UInt64.random(in: 0...UInt64.max))"
        for port in ports {
            try SQLConnection(self.server.url("postgres", port: port)).execute("CREATE DATABASE \(name)")
            guard self.server.isCitus else { continue }
            try SQLConnection(self.server.url(name, port: port)).execute("CREATE EXTENSION citus")
        }
        guard self.server.isCitus else { return }
        let coordinator = try SQLConnection(url)
        try coordinator.execute("SELECT citus_set_coordinator_host('127.0.0.1', \(ports[0]))")
        for port in ports.dropFirst() { try coordinator.execute("SELECT citus_add_node('127.0.0.1', \(port))") }
    }

    deinit {
        for port in ports {
            _ = try? SQLConnection(server.url("postgres", port: port)).execute("DROP DATABASE \(name) WITH (FORCE)")
        }
    }

    /// Of the servers that have a part of it, the one that clients connect to first.
    private var ports: [UInt16] { (0..<(server.isCitus ? 3 : 1)).map { server.port + $0 } }

    public var url: String { server.url(name) }

    /// Executes statements over a connection of its own.
    ///
    /// - Returns: the rows of the last one.
    @discardableResult
    public func execute(_ sql: String) throws -> [[String?]] {
        try SQLConnection(url).execute(sql)
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
