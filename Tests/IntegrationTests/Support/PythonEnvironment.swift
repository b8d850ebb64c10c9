import APITestSupport
import Foundation
import ProcessTestSupport

/// A Python with public packages, installed once into the build directory.
struct PythonEnvironment: Sendable {
    /// The SDKs that work with Holdfast: the reference SDK, and GrowthBook's.
    static let sdk = PythonEnvironment("optimizely-sdk==5.7.0", "growthbook==4.0.0", in: "python-sdk")
    /// OpenFeature with its provider for OFREP.
    static let openFeature = PythonEnvironment(
        "openfeature-sdk==0.10.0", "openfeature-provider-ofrep==0.3.0", in: "python-openfeature")
    /// Tests servers by their OpenAPI description.
    static let schemathesis = PythonEnvironment("schemathesis==4.32.5", in: "python-schemathesis")
    /// Checks manifests by the schemas of Kubernetes, which it contains.
    static let kubernetes = PythonEnvironment("kubernetes-validate==1.37.0", in: "python-kubernetes")
    /// The types that Grafana generates from the schemas of its dashboards.
    static let grafana = PythonEnvironment("grafana-foundation-sdk==1769699998!10.1.0", in: "python-grafana")

    /// Cassandra's shell, whose code writes the rows of `COPY … TO`.
    static let cassandra = PythonEnvironment("cqlsh==6.2.2", in: "python-cqlsh")
    /// Drives the browser that the system has.
    static let browser = PythonEnvironment("playwright==1.65.2", in: "python-playwright")

    /// The interpreter, or why there is none.
    let interpreter: Result<String, TestFailure>

    var canBeMade: Bool {
        if case .success = interpreter { true } else { false }
    }

    /// The folder of the scripts.
    static let scripts = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Python").path

    private init(_ packages: String..., in folder: String) {
        do {
            interpreter = .success(try Self.prepare(packages, folder))
        } catch {
            interpreter = .failure(TestFailure("\(packages) cannot be installed: \(error)"))
        }
    }

    private static func prepare(_ packages: [String], _ folder: String) throws -> String {
        let directory = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent()
            .appendingPathComponent(folder).path
        let python = "\(directory)/bin/python"
        // Written last, so that what an interrupted installation left is not taken for a whole one.
        let mark = "\(directory)/installed"
        let installed = Data(packages.joined(separator: " ").utf8)
        if FileManager.default.contents(atPath: mark) == installed { return python }
        try run("python3", "-m", "venv", "--clear", directory)
        try runAt(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"] + packages)
        try installed.write(to: URL(fileURLWithPath: mark))
        return python
    }
}
