import Foundation

/// What the tests run.
enum Executable {
    /// The built `holdfast`, which lies beside the test bundle.
    static let holdfast: String = {
        let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent("holdfast").path
    }()

    /// The first program of this name on the `PATH`.
    static func find(_ name: String) -> String? {
        let directories = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return directories.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}
