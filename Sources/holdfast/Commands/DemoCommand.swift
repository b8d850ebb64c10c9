import ArgumentParser
import Dispatch
import FoundationEssentials
import Glibc
import HTTPServer
import Logging

/// Serves an example with simulated users on a temporary database, to try out the console.
struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Shows the console with an example and simulated users, on a temporary database.")

    @Option(help: .init("Where to listen (default: 127.0.0.1:8080).", valueName: "host:port"))
    var listen: String?

    @Option(help: .init("New users per second, 0 to 1000 (default: 5).", valueName: "n"))
    var rate: String?

    func run() throws {
        // Variables of the environment do not apply to the demo.
        let settings = Settings(environment: [:])
        var users = 5
        try settings.apply(rate, "rate", in: 0...1_000, to: &users)
        var configuration = ServeConfiguration()
        settings.apply(listen, "listen", to: &configuration.http.address)
        configuration.logLevel = .warning
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("holdfast-demo-\(getpid())")
        try FileManager.default.createDirectory(
            at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(at: directory) }
        configuration.database = DatabaseLocation(directory.appendingPathComponent("holdfast.db").path)
        var server = ServerRun(configuration, settings)
        try server.run { address in
            // The address without its port, and without the brackets around an IPv6 address.
            let host = "\(address)".split(separator: ":").dropLast().joined(separator: ":").filter {
                !"[]".contains($0)
            }
            let traffic = DemoTraffic(HTTPProbe(host: host, port: Int(address.port), seconds: 10))
            try traffic.prepare()
            print("The console is at http://\(address)/console/ and needs no token.")
            print("Users arrive while this runs. Ctrl+C ends it and deletes everything.")
            fflush(nil)
            DispatchQueue(label: "traffic").async { [users] in traffic.run(usersPerSecond: users) }
        }
    }
}
