import APITestSupport
import Foundation
import Glibc
import JSON
import ProcessTestSupport
import Testing

/// The console in Chromium, and the commands that concern it.
@Suite struct ConsoleTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private static let browser = Executable.find("chromium-headless-shell") ?? Executable.find("chromium")
    private static let firefox = Executable.find("firefox-esr") ?? Executable.find("firefox")

    /// `HOLDFAST_CONSOLE_SHOTS=FOLDER` writes a picture of each screen.
    @Test(
        .enabled(if: browser != nil, "Chromium is not installed"),
        .enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `People do in Chromium what the console offers`() throws {
        try drive(try #require(Self.browser), by: "console.py")
    }

    @Test(
        .enabled(if: firefox != nil, "Firefox is not installed"),
        .enabled(if: PythonPackages.areInstalled, PythonPackages.missing))
    func `People do in Firefox what they do every week`() throws {
        try drive(try #require(Self.firefox), by: "firefox.py")
    }

    private func drive(_ browser: String, by script: String) throws {
        let shots = ProcessInfo.processInfo.environment["HOLDFAST_CONSOLE_SHOTS"]
        let child = try ChildProcess(
            PythonPackages.interpreter,
            ["\(PythonPackages.scripts)/\(script)", Executable.holdfast, directory.path, browser],
            environment: ["HOME": directory.path, "HOLDFAST_CONSOLE_SHOTS": shots ?? ""])
        let end = child.wait()
        #expect(end == .exit(0), "\(child.output.text)\(child.errors.text)")
    }

    @Test func `With --no-console there is no console`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"), ["--no-console"])
        #expect(try server.request("GET", "/console/").status == 404)
        #expect(try server.request("GET", "/", fields: ["Accept: text/html"]).status == 404)
        server.stop()
    }

    @Test func `The demo serves an example with users on a database that it deletes`() throws {
        let child = try ChildProcess(
            Executable.holdfast, ["demo", "--listen", "127.0.0.1:0"], environment: ["TMPDIR": directory.path])
        let line = try #require(child.output.first { $0.contains("/console/") })
        let address = try #require(line.firstMatch(of: #/127\.0\.0\.1:(\d+)\/console/#))
        let port = try #require(UInt16(address.output.1))
        let client = try HTTPClient(port: port)
        try client.send(TestRequest("GET", "/v1/experiments/checkout/results?goal=purchase").encoded())
        let results = try client.receive().json
        #expect(results["users"]["counted"].integer ?? 0 > 1_000)
        #expect(results["variations"].array?.allSatisfy { $0["converted"].integer ?? 0 > 0 } == true)
        // A new user sees a verdict with a lift and its interval.
        try client.send(TestRequest("GET", "/v1/experiments/checkout/results").encoded())
        let planned = try client.receive().json
        #expect(planned["verdict"]["decision"] == "ship" && planned["verdict"]["winner"] == "one-page")
        let better = planned["metrics"].array?.first?["variations"].array?.last
        #expect(better?["lift"].double ?? 0 > 0 && better?["lift_interval"].array?.count == 2)
        child.send(SIGINT)
        #expect(child.wait() == .exit(0), "\(child.errors.text)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == [])
    }
}
