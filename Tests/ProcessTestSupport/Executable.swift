import Foundation

/// Paths of programs that tests run.
public enum Executable {
    /// The built `holdfast`.
    public static let holdfast = built("holdfast")

    /// Returns what the package builds beside the test bundle.
    public static func built(_ name: String) -> String {
        let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent(name).path
    }

    /// Returns the first program of this name on the `PATH`.
    public static func find(_ name: String) -> String? {
        let directories = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return directories.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}
