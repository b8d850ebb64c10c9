import APITestSupport
import Foundation
import ProcessTestSupport

/// Sets the wall clock of a server forward and back, with the library `Tests/SetClock`.
final class SetClock {
    private let path: String
    private let offset: UnsafeMutablePointer<Int64>

    /// Beside the server.
    private static let library = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent()
        .appendingPathComponent("libSetClock.so").path

    init(in directory: TemporaryDirectory, _ name: String = "clock") throws {
        path = try directory.write(String(repeating: "\0", count: 8), to: name)
        let descriptor = open(path, O_RDWR | O_CLOEXEC)
        defer { close(descriptor) }
        guard descriptor >= 0, let memory = mmap(nil, 8, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0),
            memory != MAP_FAILED
        else { throw TestFailure("\(path) cannot be mapped") }
        offset = memory.bindMemory(to: Int64.self, capacity: 1)
    }

    deinit {
        munmap(offset, 8)
    }

    /// The environment of a server with this clock.
    var environment: [String: String] {
        ["LD_PRELOAD": Self.library, "HOLDFAST_CLOCK_CONTROL": path]
    }

    /// Sets the clock to the present plus so many hours.
    func set(hours: Int64) {
        offset.pointee = hours * 3_600
    }
}
