import APITestSupport
import Foundation

/// A file that nobody may write to, not even through a descriptor that is open already; only the administrator may
/// make it so, on file systems that know such a flag.
enum ImmutableFile {
    static let canBeMade: Bool = {
        guard getuid() == 0, let directory = try? TemporaryDirectory(),
            let file = try? directory.write("", to: "file"), (try? make(file)) != nil
        else { return false }
        return (try? release(file)) != nil
    }()

    static func make(_ paths: String...) throws {
        for path in paths { try run("chattr", "+i", path) }
    }

    static func release(_ paths: String...) throws {
        for path in paths { try run("chattr", "-i", path) }
    }
}
