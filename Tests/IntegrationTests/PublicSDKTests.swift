import Bucketing
import JSON
import Testing

/// Holdfast as the User Profile Service of the public Python SDK.
@Suite struct PublicSDKTests {
    @Test(.enabled(if: PythonEnvironment.sdk.canBeMade, "the public SDK cannot be installed here"))
    func `A user keeps the variation after the traffic allocation changed and the server was restarted`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        let python = try PythonEnvironment.sdk.interpreter.get()
        let scripts = PythonEnvironment.scripts
        func decide(_ server: ServerProcess, _ datafile: String, _ phase: String) throws -> JSONValue {
            let output = try runAt(
                python,
                [
                    "\(scripts)/sticky_sdk.py", "http://127.0.0.1:\(server.port)", "\(scripts)/\(datafile)",
                    directory.file("state"), phase,
                ])
            return try JSONParser().parse(output)
        }

        var server = try ServerProcess(database: database)
        let first = try decide(server, "datafile-4.json", "first")
        #expect(first["decided"].integer ?? 0 > 100)
        #expect(first["saves"] == first["decided"])
        server.stop()

        server = try ServerProcess(database: database)
        let again = try decide(server, "datafile-4-changed.json", "again")
        #expect(again["kept"].integer ?? 0 > 100)
        #expect(again["moved"] == [])
        #expect(again["would_have_moved"].integer ?? 0 > 50)
        #expect(again["given_another"].integer ?? 0 > 0)
        server.stop()
    }
}
