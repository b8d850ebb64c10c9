import Foundation

/// The inputs that a target begins with: valid ones, and those that once were a finding.
enum Corpus {
    /// In the order of their names, so that a seed means the same everywhere.
    static func inputs(of target: FuzzTarget) throws -> [[UInt8]] {
        let directory = Bundle.module.bundleURL.appending(path: "Corpus/\(target.name)")
        return try FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)
            .sorted { $0.lastPathComponent < $1.lastPathComponent }
            .map { Array(try Data(contentsOf: $0)) }
    }
}
