import APITestSupport
import Foundation
import ProcessTestSupport

/// Runs the commands of a section in one shell, beside an empty database with a server.
struct ExampleRun {
    private let section: ExampleSection
    private let directory: TemporaryDirectory
    private let server: ServerProcess

    /// Written before the output of each command.
    private static let separator: Character = "\u{1E}"

    init(_ section: ExampleSection) throws {
        self.section = section
        directory = try TemporaryDirectory()
        var options: [String] = []
        if section.file == "Access.md" || section.commands.contains(where: { $0.text.contains(" tokens)") }) {
            // As the first block of Access.md makes it.
            let secrets = (0..<3).map { _ in UUID().uuidString }
            let tokens = "admin on-call \(secrets[0])\nwrite app \(secrets[1])\nadmin ann \(secrets[2])\n"
            options = ["--tokens-file", try directory.write(tokens, to: "tokens"), "--approvals", "2"]
        }
        if section.file == "Assistants.md" { options = ["--mcp"] }
        // Nobody listens there.
        if section.title == "Traces" { options = ["--traces-endpoint", "http://127.0.0.1:9"] }
        server = try ServerProcess(database: directory.file("holdfast.db"), options)
        // Where output is no terminal, curl would show its progress.
        _ = try directory.write("silent\nshow-error\n", to: ".curlrc")
        for (name, script) in section.scripts { _ = try directory.write(addressed(script), to: name) }
    }

    /// `HOLDFAST_TEST_SHELL` names another one, such as zsh.
    private static let shell = ProcessInfo.processInfo.environment["HOLDFAST_TEST_SHELL"] ?? "/bin/sh"

    /// Runs the commands and returns what each printed, to either output.
    func outputs() throws -> [String] {
        let commands = section.commands.map { "printf '\\036'\n\($0.text)\n" }.joined()
        let shell = try ChildProcess(
            Self.shell, ["-c", "cd '\(directory.path)' && exec 2>&1\n" + addressed(commands)], environment: environment)
        _ = shell.wait()
        return shell.output.text.split(separator: Self.separator, omittingEmptySubsequences: false).dropFirst()
            .map { String($0).replacing(":\(server.port)", with: ":8080") }
    }

    private func addressed(_ text: String) -> String {
        text.replacing("localhost:8080", with: "localhost:\(server.port)")
    }

    private var environment: [String: String] {
        var programs = [URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent().path]
        if !section.scripts.isEmpty { programs.insert(PythonPackages.programs, at: 0) }
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        return [
            "PATH": "\(programs.joined(separator: ":")):\(path)", "CURL_HOME": directory.path,
            "HOLDFAST_LISTEN": "127.0.0.1:\(server.port)",
        ]
    }

    /// Returns the text without what differs from run to run: times, request ids and line ends.
    static func normalised(_ text: String) -> String {
        text.replacing("\r\n", with: "\n")
            .replacing(#/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/#, with: "TIME")
            .replacing(#/"\d{4}-\d\d-\d\d"/#, with: "DAY")
            .replacing(#/Date: [^\n]*/#, with: "Date: TIME")
            .replacing(#/(X-Request-Id: |"request_id":")[0-9a-f]+-\d+/#) { "\($0.output.1)ID" }
            .trimmingCharacters(in: .newlines)
    }
}
