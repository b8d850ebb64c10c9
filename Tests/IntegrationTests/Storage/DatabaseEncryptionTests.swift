import APITestSupport
import Foundation
import PostgreSQLTestSupport
import ProcessTestSupport
import Testing

/// Servers and PostgreSQL with TLS (`sslmode=verify-full`) and SCRAM.
@Suite(.enabled(if: Tool.openssl.isExpected, "openssl is not installed"))
struct DatabaseEncryptionTests {
    private static let password = "s3cret+Passw0rd"

    private let directory: TemporaryDirectory
    private let postgreSQL: PostgreSQLServer
    /// Over the socket, which needs no password.
    private let admin: SQLConnection

    init() throws {
        directory = try TemporaryDirectory()
        // PostgreSQL may run as another user.
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory.path)
        for authority in ["trusted", "other"] { try Self.makeCertificates(of: authority, in: directory) }
        try Self.install("trusted", in: directory)
        let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        let hba = try directory.write(rules, to: "pg_hba.conf", mode: 0o644)
        postgreSQL = try PostgreSQLServer([
            "fsync=off", "hba_file='\(hba)'", "password_encryption='scram-sha-256'", "ssl=on",
            "ssl_cert_file='\(directory.file("server.crt"))'", "ssl_key_file='\(directory.file("server.key"))'",
        ])
        admin = try SQLConnection(
            "postgresql:///postgres?user=postgres&host=\(postgreSQL.directory)&port=\(postgreSQL.port)")
        try admin.execute("CREATE ROLE holdfast LOGIN PASSWORD '\(Self.password)'")
        try admin.execute("CREATE DATABASE holdfast OWNER holdfast")
    }

    /// Makes an authority, and the certificate of a server `localhost` that it has signed.
    private static func makeCertificates(of authority: String, in directory: TemporaryDirectory) throws {
        let file = { (name: String) in directory.file("\(authority)\(name)") }
        let new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        let path = try Tool.openssl.path()
        try runAt(
            path, ["req", "-x509", "-subj", "/CN=\(authority)", "-keyout", file(".key"), "-out", file(".crt")] + new)
        try runAt(
            path,
            [
                "req", "-x509", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                "-CA", file(".crt"), "-CAkey", file(".key"), "-keyout", file("-server.key"), "-out",
                file("-server.crt"),
            ] + new)
    }

    /// Makes the certificate of an authority the server's, after its next `pg_reload_conf()`.
    private static func install(_ authority: String, in directory: TemporaryDirectory) throws {
        for name in ["server.crt", "server.key"] {
            let content = try String(contentsOfFile: directory.file("\(authority)-\(name)"), encoding: .utf8)
            let file = try directory.write(content, to: name)
            if getuid() == 0 { try runAt("/usr/bin/env", ["chown", "postgres", file]) }
        }
    }

    private func url(
        host: String = "localhost", mode: String = "verify-full", authority: String = "trusted",
        user: String = "holdfast"
    ) -> String {
        "postgresql://\(user)@\(host):\(postgreSQL.port)/holdfast?hostaddr=127.0.0.1&sslmode=\(mode)"
            + "&sslrootcert=\(directory.file("\(authority).crt"))"
    }

    @Test func `Every connection is encrypted, and one to a server without a trusted certificate is refused`() throws {
        let server = try ServerProcess(
            database: url() + "&channel_binding=require", ["--log-level", "trace", "--database-timeout", "5s"],
            environment: ["PGPASSWORD": Self.password])
        let save = #"{"user_id":"ada","experiment_bucket_map":{"7":{"variation_id":"1"}}}"#
        #expect(try server.request("POST", "/ups/save", save).status == 200)
        #expect(try server.request("GET", "/readyz").status == 200)
        #expect(try server.request("GET", "/v1/profiles/ada").status == 200)
        let connections = try admin.execute(
            """
            SELECT count(*) > 3, bool_and(ssl), bool_and(version >= 'TLSv1.2')
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'holdfast'
            """)
        #expect(connections == [["t", "t", "t"]])
        #expect(
            try admin.execute("SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname = 'holdfast'")
                == [["t"]])

        try Self.install("other", in: directory)
        try reconnect { try server.request("GET", "/readyz/reads").text.contains("certificate verify failed") }
        #expect(try server.request("GET", "/v1/profiles/ada").status == 503)
        try Self.install("trusted", in: directory)
        try reconnect { try server.request("GET", "/v1/profiles/ada").status == 200 }
        server.stop()
        #expect(!(server.child.errors.text + server.child.output.text).contains(Self.password))
    }

    /// Lets PostgreSQL read its certificate again, and cuts all connections, until something holds.
    private func reconnect(until holds: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(60)
        repeat {
            try admin.execute("SELECT pg_reload_conf()")
            try admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'holdfast'")
            guard .now < deadline else { throw TestFailure("nothing has changed") }
        } while try !holds()
    }

    @Test func `A server that cannot log in says why, without the password`() throws {
        let withPassword = url(authority: "other", user: "holdfast:\(Self.password)")
        let wrongPassword = "not \(Self.password)"
        for (url, password, message) in [
            (withPassword, nil, "certificate verify failed"),
            (url(authority: "other"), Self.password, "certificate verify failed"),
            (url(authority: "missing"), Self.password, "missing.crt\" does not exist"),
            (url(host: "127.0.0.1"), Self.password, "does not match host name \"127.0.0.1\""),
            (url(mode: "disable"), Self.password, "no encryption"),
            (url(), wrongPassword, "password authentication failed for user \"holdfast\""),
            (url(), nil, "no password supplied"),
        ] {
            var environment = ["HOLDFAST_DATABASE": url, "HOLDFAST_LISTEN": "127.0.0.1:0"]
            environment["PGPASSWORD"] = password
            let run = try Command("serve", "--log-level", "trace", environment: environment)
            #expect(run.end == .exit(1))
            #expect(run.errors.contains(message), "\(run.errors)")
            #expect(!(run.errors + run.output).contains(Self.password), "\(run.errors)")
        }
    }
}
