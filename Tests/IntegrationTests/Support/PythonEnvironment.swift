import Foundation

/// A Python with the public SDK, installed once into the build directory.
enum PythonEnvironment {
    private static let package = "optimizely-sdk==5.7.0"

    /// The interpreter, or why there is none.
    static let interpreter: Result<String, TestFailure> = {
        do {
            return .success(try prepare())
        } catch {
            return .failure(TestFailure("\(package) cannot be installed: \(error)"))
        }
    }()

    static var canBeMade: Bool {
        if case .success = interpreter { true } else { false }
    }

    /// The folder of the scripts.
    static let scripts = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Python").path

    private static func prepare() throws -> String {
        let directory = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent()
            .appendingPathComponent("python-sdk").path
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
