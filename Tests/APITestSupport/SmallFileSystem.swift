package import Foundation
import ProcessTestSupport

/// A file system of a few MiB for one test; mounting it needs root.
package final class SmallFileSystem {
    package let path: String

    package static let canBeMade: Bool = {
        guard getuid() == 0, let directory = try? TemporaryDirectory() else { return false }
        return (try? SmallFileSystem(at: directory.path)) != nil
    }()

    package init(at path: String, mebibytes: Int = 4) throws {
        try run("mount", "-t", "tmpfs", "-o", "size=\(mebibytes)m", "tmpfs", path)
        self.path = path
    }

    deinit {
        try? run("umount", "--lazy", path)
    }

    /// Fills the file system except for so many bytes.
    ///
    /// - Returns: the path of the file to remove to get the space back.
    package func fill(leaving rest: off_t = 0) throws -> String {
        let ballast = "\(path)/ballast"
        let descriptor = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw TestFailure("\(ballast) cannot be made") }
        defer { close(descriptor) }
        let zeros = [UInt8](repeating: 0, count: 4_096)
        while write(descriptor, zeros, zeros.count) > 0 {}
        guard ftruncate(descriptor, max(0, lseek(descriptor, 0, SEEK_END) - rest)) == 0 else {
            throw TestFailure("\(ballast) cannot be cut")
        }
        return ballast
    }
}
