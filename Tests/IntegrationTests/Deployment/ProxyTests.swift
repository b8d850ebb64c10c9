import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// `docker/nginx.conf` in a real nginx, with a certificate of its own.
@Suite(.enabled(if: Tool.nginx.isExpected && Tool.openssl.isExpected, "nginx-light or openssl is not installed"))
struct ProxyTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let proxy: Proxy

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(
            database: directory.file("holdfast.db"),
            ["--access-log", "--trusted-proxies", "127.0.0.1", "--allowed-hosts", "holdfast.test"])
        proxy = try Proxy(to: server.port, in: directory)
    }

    @Test func `Requests pass through TLS, and the log has the client's address, not what it invented`() throws {
        let body = profile("ada", ["11": "1"])
        let saved = try proxy.curl("/ups/save", ["--data", body, "--header", "X-Forwarded-For: 192.0.2.7"])
        #expect(saved == body)
        let line = try #require(server.child.errors.first { $0.contains(#""target":"/ups/save""#) })
        let entry = try JSONParser().parse(line)
        // The proxy is at 127.0.0.1, and curl connects from another address of this host.
        #expect(entry["client"] == "127.0.0.2")
        #expect(entry["proxy"] == "127.0.0.1")
        let head = try proxy.curl("/v1/profiles/ada", ["--head"])
        #expect(head.contains("Strict-Transport-Security: max-age="))
        #expect(head.contains("ETag: "))
    }

    @Test func `Changes arrive at once, and an export and an import of any size pass through`() throws {
        try ChangeSamples.put(server)
        let stream = try proxy.start("/v1/changes", ["--no-buffer"])
        #expect(stream.output.first { $0.contains(#""revision":"1""#) } != nil)
        try ChangeSamples.put(server, weight: 2)
        #expect(stream.output.first { $0.contains(#""revision":"2""#) } != nil)
        stream.send(SIGKILL)
        _ = stream.wait()
        let lines = (0..<20_000).map { profile("user\(10_000 + $0)", ["11": "1"]) + "\n" }.joined()
        let file = try directory.write(lines, to: "lines")
        #expect(try proxy.curl("/v1/profiles", ["--data-binary", "@\(file)"]).contains(#""imported":20000"#))
        #expect(try proxy.curl("/v1/profiles", []) + "\n" == lines)
    }

    @Test func `The proxy may open a file for each of its connections`() throws {
        let text = try DeploymentFile.text("nginx.conf")
        let connections = try #require(text.firstMatch(of: #/worker_connections (\d+);/#).flatMap { Int($0.output.1) })
        let files = try #require(text.firstMatch(of: #/worker_rlimit_nofile (\d+);/#).flatMap { Int($0.output.1) })
        // And one for the log, the certificate, and each address.
        #expect(files >= connections + 100)
    }

    @Test func `Metrics are not for the outside, and plain HTTP is sent to TLS`() throws {
        #expect(try proxy.curl("/metrics", ["--write-out", "%{http_code}", "--output", "/dev/null"]) == "404")
        let redirect = try proxy.curl(
            "/v1/profiles/ada?detail=true", ["--write-out", "%{http_code} %{redirect_url}", "--output", "/dev/null"],
            isPlain: true)
        #expect(redirect == "308 https://holdfast.test/v1/profiles/ada?detail=true")
    }
}

/// nginx with the configuration of the repository, but for its ports and its files.
private final class Proxy {
    private let child: ChildProcess
    private let (securePort, plainPort): (UInt16, UInt16)
    private let certificate: String

    init(to port: UInt16, in directory: TemporaryDirectory) throws {
        certificate = directory.file("server.crt")
        let key = directory.file("server.key")
        try Tool.openssl.run(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
            "-out",
            certificate, "-days", "2", "-subj", "/CN=holdfast.test", "-addext", "subjectAltName=DNS:holdfast.test")
        (securePort, plainPort) = (try Self.freePort(), try Self.freePort())
        let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map { "    \($0)_temp_path \(directory.file($0));\n" }.joined()
        let configuration = try DeploymentFile.text("nginx.conf")
            .replacing("server holdfast:8080;", with: "server 127.0.0.1:\(port);")
            .replacing("listen 443 ssl;", with: "listen 127.0.0.1:\(securePort) ssl;")
            .replacing("listen 80;", with: "listen 127.0.0.1:\(plainPort);")
            .replacing(#/ *listen \[::\]:.*;\n/#, with: "")
            .replacing("/etc/nginx/tls/server", with: directory.file("server"))
            .replacing("http {\n", with: "http {\n\(scratch)")
        let path = try directory.write(configuration, to: "nginx.conf")
        // Its workers have a user of their own.
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory.path)
        let globals = "daemon off; pid \(directory.file("nginx.pid")); error_log stderr notice;"
        child = try ChildProcess(Tool.nginx.path(), ["-p", directory.path, "-c", path, "-g", globals])
        guard child.errors.first(where: { $0.contains("start worker process") }) != nil else {
            throw TestFailure("nginx did not start: \(child.errors.text)")
        }
    }

    deinit {
        child.send(SIGTERM)
        child.wait()
    }

    /// nginx cannot listen on a port that the kernel chooses, so this asks for one that is free.
    private static func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let code = withUnsafeMutableBytes(of: &address) { bytes in
            let pointer = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress
            return bind(descriptor, pointer, length) == 0 ? getsockname(descriptor, pointer, &length) : -1
        }
        guard code == 0 else { throw TestFailure("bind: \(String(cString: strerror(errno)))") }
        return UInt16(bigEndian: address.sin_port)
    }

    /// Runs curl from 127.0.0.2 to its end, and returns what it printed.
    func curl(_ target: String, _ options: [String], isPlain: Bool = false) throws -> String {
        let child = try start(target, options, isPlain: isPlain)
        guard child.wait() == .exit(0) else { throw TestFailure("curl: \(child.errors.text)") }
        return child.output.text.replacing("\r", with: "")
    }

    func start(_ target: String, _ options: [String], isPlain: Bool = false) throws -> ChildProcess {
        guard let curl = Executable.find("curl") else { throw TestFailure("there is no curl") }
        let port = isPlain ? plainPort : securePort
        let url = "\(isPlain ? "http" : "https")://holdfast.test:\(port)\(target)"
        let connection = [
            "--silent", "--show-error", "--interface", "127.0.0.2", "--cacert", certificate, "--resolve",
            "holdfast.test:\(port):127.0.0.1", "--max-time", "60",
        ]
        return try ChildProcess(curl, connection + options + [url])
    }
}
