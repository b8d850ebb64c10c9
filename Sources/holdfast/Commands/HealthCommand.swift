import ArgumentParser
import FoundationEssentials
import Glibc
import HTTPServer

/// Checks the health of a running server; for container health checks.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Checks the health of a running server; exit status 1 if it is not healthy.")

    @Option(
        help: .init(
            "URL of the server's health check (default: /health at HOLDFAST_LISTEN, or at 127.0.0.1:8080).",
            valueName: "url"))
    var url: String?

    @Option(help: .init("How long to wait for the response (default: 3s).", valueName: "time"))
    var timeout: String?

    /// The settings of this command. The server does not warn of them as unknown, because a health check shares the
    /// environment of the container.
    static let settings = ["url", "timeout"]

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var given: String?
        settings.apply(url, "url", to: &given)
        let address = try given ?? Self.defaultAddress(settings) + "/health"
        var period = Period(seconds: 3)
        try settings.apply(timeout, "timeout", to: &period)
        guard let target = URL(string: address), target.scheme == "http", let host = target.host else {
            throw Failure("--url must be an http URL; got '\(address)'")
        }
        let path = target.path.isEmpty ? "/health" : target.path
        let response: HTTPProbe.Response
        do {
            response = try HTTPProbe(host: host, port: target.port ?? 80, seconds: period.seconds).get(path)
        } catch {
            throw Failure("\(address) does not respond: \(error)")
        }
        guard response.status == 200 else { throw Failure("\(address) responds \(response.status): \(response.body)") }
        print(response.body, terminator: response.body.last?.isNewline == true ? "" : "\n")
    }

    /// Returns the URL of a server that is configured by the same environment.
    ///
    /// - Throws: ``Failure`` if the kernel chooses the port, which cannot be known.
    static func defaultAddress(_ settings: Settings) throws -> String {
        var listen = ServeConfiguration().http.address
        settings.apply(nil, "listen", to: &listen)
        let address = try SocketAddress(resolving: listen)
        let port = address.port
        guard port != 0 else {
            throw Failure(
                "--url must say where the server is: HOLDFAST_LISTEN is '\(listen)', for a port that the kernel chooses"
            )
        }
        // A server that listens on all addresses is reached by loopback.
        let reachable =
            switch "\(address)" {
            case "0.0.0.0:\(port)": "127.0.0.1:\(port)"
            case "[::]:\(port)": "[::1]:\(port)"
            default: "\(address)"
            }
        return "http://\(reachable)"
    }
}
