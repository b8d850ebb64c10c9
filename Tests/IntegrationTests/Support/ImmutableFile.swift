import APITestSupport
import Foundation

/// Makes files immutable, even through open descriptors; needs root and a file system with this flag.
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
