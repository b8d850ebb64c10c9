import Foundation
import Testing

/// The public Python packages of `Python/requirements.txt`, which `.ci/setup tests` installs into the build directory.
enum PythonPackages {
    private static let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()

    /// The folder of the scripts.
    static let scripts = tests.appendingPathComponent("Python").path

    /// The folder of the interpreter and of the programs that packages bring.
    static let programs = tests.appendingPathComponent("../../.build/python/bin").standardized.path

    static let interpreter = "\(programs)/python"

    static let areInstalled =
        FileManager.default.contents(atPath: "\(programs)/../requirements.txt")
        == FileManager.default.contents(atPath: "\(scripts)/requirements.txt")

    /// Why a test is skipped.
    static let missing: Comment = "`.ci/setup tests` has not installed Python's packages"
}
