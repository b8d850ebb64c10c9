import Testing

/// The public tool Schemathesis sends what the published description allows and what it forbids, and compares the answers
/// with the description.
@Suite struct SchemathesisTests {
    @Test(.enabled(if: PythonEnvironment.schemathesis.canBeMade, "Schemathesis cannot be installed here"))
    func `The server answers as it is described to, whatever it is sent`() throws {
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let python = try PythonEnvironment.schemathesis.interpreter.get()
        let address = "http://127.0.0.1:\(server.port)"
        let scripts = PythonEnvironment.scripts
        // It leaves notes where it is run.
        let child = try ChildProcess(
            try #require(Executable.find("env")),
            [
                "--chdir", directory.path, python.replacing("/bin/python", with: "/bin/schemathesis"), "--config-file",
                "\(scripts)/schemathesis.toml", "run", "\(address)/openapi.json", "--url", address,
            ],
            environment: [
                "PYTHONPATH": scripts, "PYTHONDONTWRITEBYTECODE": "1", "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            ])
        #expect(child.wait() == .exit(0), "\(child.output.text.suffix(8_000)) \(child.errors.text.suffix(2_000))")
        server.stop()
    }
}
