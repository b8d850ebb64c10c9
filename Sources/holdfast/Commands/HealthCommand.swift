import ArgumentParser
import Foundation

/// Asks a running server whether it is healthy; for container health checks.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Asks a running server whether it is healthy; says so with the exit status.")

    @Option(help: .init("The server's health resource (default: http://127.0.0.1:8080/health).", valueName: "url"))
    var url: String?

    @Option(help: .init("How long to wait for the answer (default: 3s).", valueName: "time"))
    var timeout: String?

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var address = "http://127.0.0.1:8080/health"
        settings.apply(url, "url", to: &address)
        var period = Period(seconds: 3)
        try settings.apply(timeout, "timeout", to: &period)
        guard let target = URL(string: address), target.scheme == "http", let host = target.host else {
            throw Failure("--url: '\(address)' is not an http URL")
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
}
