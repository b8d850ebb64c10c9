import APITestSupport
import Foundation
import ProcessTestSupport

/// A program from a Debian package that tests run. Continuous integration (`CI` in the environment) has to have it;
/// elsewhere its tests are skipped where it is missing.
struct Tool: Sendable {
    static let nginx = Tool("nginx", of: "nginx-light")
    static let node = Tool("node", of: "nodejs")
    static let openssl = Tool("openssl", of: "openssl")
    static let promtool = Tool("promtool", of: "prometheus")
    static let redisServer = Tool("redis-server", of: "redis-server")
    static let sqlite = Tool("sqlite3", of: "sqlite3")
    static let systemdAnalyze = Tool("systemd-analyze", of: "systemd")

    let name: String
    /// Its path; `nil` if it is not installed.
    let installed: String?
    private let package: String

    private init(_ name: String, of package: String) {
        self.name = name
        self.package = package
        installed = Executable.find(name) ?? ["/usr/sbin/\(name)"].first { access($0, X_OK) == 0 }
    }

    var isExpected: Bool { installed != nil || ProcessInfo.processInfo.environment["CI"] != nil }

    /// - Throws: if the program is not installed.
    func path() throws -> String {
        guard let installed else { throw TestFailure("there is no \(name); install the Debian package \(package)") }
        return installed
    }

    /// Runs the program to its end, and returns its standard output.
    @discardableResult
    func run(_ arguments: String...) throws -> String {
        try runAt(path(), arguments)
    }
}

/// The files of the folder `docker`.
enum DeploymentFile {
    static let folder = "\(ExampleSection.root)/docker"

    static func text(_ name: String) throws -> String {
        try String(contentsOfFile: "\(folder)/\(name)", encoding: .utf8)
    }
}
