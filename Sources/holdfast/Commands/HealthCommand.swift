import ArgumentParser
import Foundation
import HTTPServer

/// Asks a running server whether it is healthy; for container health checks.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Asks a running server whether it is healthy; says so with the exit status.")

    @Option(
        help: .init("The server's health resource (default: /health at HOLDFAST_LISTEN, or at 127.0.0.1:8080).", valueName: "url"))
    var url: String?

    @Option(help: .init("How long to wait for the answer (default: 3s).", valueName: "time"))
    var timeout: String?

    /// The names of its own settings, which stand in the environment of a server whose health is checked.
    static let settings = ["url", "timeout"]

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var given: String?
        settings.apply(url, "url", to: &given)
        let address = try given ?? Self.defaultURL(settings)
        var period = Period(seconds: 3)
        try settings.apply(timeout, "timeout", to: &period)
        guard let target = URL(string: address), target.scheme == "http", let host = target.host else {
            throw Failure("--url must be an http URL; got '\(address)'")
        }
        let path = target.path.isEmpty ? "/health" : target.path
        let answer: HTTPProbe.Answer
        do {
            answer = try HTTPProbe(host: host, port: target.port ?? 80, seconds: period.seconds).get(path)
        } catch {
            throw Failure("\(address) does not answer: \(error)")
        }
        guard answer.status == 200 else { throw Failure("\(address) answers \(answer.status): \(answer.body)") }
        print(answer.body.trimmingCharacters(in: .newlines))
    }

    /// The health resource of a server that takes its address from the same environment.
    private static func defaultURL(_ settings: Settings) throws -> String {
        var listen = ServeConfiguration().listen
        settings.apply(nil, "listen", to: &listen)
        let address = try SocketAddress(resolving: listen)
        let port = address.port
        guard port != 0 else {
            throw Failure("--url must say where the server is: HOLDFAST_LISTEN is '\(listen)', for a port that the kernel chooses")
        }
        let reachable =
            switch "\(address)" {
            case "0.0.0.0:\(port)": "127.0.0.1:\(port)"
            case "[::]:\(port)": "[::1]:\(port)"
            default: "\(address)"
            }
        return "http://\(reachable)/health"
    }
}
