import APITestSupport
import Foundation

/// A Python with a public package, installed once into the build directory.
struct PythonEnvironment: Sendable {
    /// The reference SDK.
    static let sdk = PythonEnvironment("optimizely-sdk==5.7.0", in: "python-sdk")
    /// Tests servers by their OpenAPI description.
    static let schemathesis = PythonEnvironment("schemathesis==4.32.5", in: "python-schemathesis")

    /// The interpreter, or why there is none.
    let interpreter: Result<String, TestFailure>

    var canBeMade: Bool {
        if case .success = interpreter { true } else { false }
    }

    /// The folder of the scripts.
    static let scripts = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Python").path

    private init(_ package: String, in folder: String) {
        do {
            interpreter = .success(try Self.prepare(package, folder))
        } catch {
            interpreter = .failure(TestFailure("\(package) cannot be installed: \(error)"))
        }
    }

    private static func prepare(_ package: String, _ folder: String) throws -> String {
        let directory = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent()
            .appendingPathComponent(folder).path
        let python = "\(directory)/bin/python"
        // Written last, so that what an interrupted installation left is not taken for a whole one.
        let mark = "\(directory)/installed"
        if FileManager.default.contents(atPath: mark) == Data(package.utf8) { return python }
        try run("python3", "-m", "venv", "--clear", directory)
        try runAt(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package])
        try Data(package.utf8).write(to: URL(fileURLWithPath: mark))
        return python
    }
}
