import Foundation
import Testing

@testable import HoldfastClient

#if os(Linux)
    /// A client whose disk takes its time.
    @Suite struct SlowDiskTests {
        private let directory: TemporaryDirectory
        private let server: RealServer

        init() throws {
            directory = try TemporaryDirectory()
            server = try RealServer()
        }

        @Test func `Events are taken while the queue's file waits for the disk, and are in the new file`() throws {
            let queue = directory.url.resolvingSymlinksInPath().appendingPathComponent("queue").appendingPathComponent("queue.log")
            let control = directory.path("control")
            #expect(FileManager.default.createFile(atPath: control, contents: Data(count: 4_096)))
            // As long as the control file is locked, a `fsync` of the new file does not return; see FaultyDisk.c.
            var disk: FileDescriptor? = try FileDescriptor(path: control)
            #expect(disk?.lock() == true)
            let program = try Program(
                "client-process",
                [try server.endpoint.absoluteString, queue.deletingLastPathComponent().path, "compact"],
                environment: [
                    "LD_PRELOAD": Program.directory.appendingPathComponent("libFaultyDisk.so").path,
                    "HOLDFAST_FAULTY_CONTROL": control, "HOLDFAST_FAULTY_DATABASE": queue.path + ".new",
                    "HOLDFAST_FAULTY_LOG": directory.path("log"),
                ], reading: .standard)
            #expect(program.line { $0 == "tracked" } != nil)
            let length = try Data(contentsOf: queue).count
            disk = nil
            #expect(program.wait() == 0)
            #expect(try Data(contentsOf: queue).count < length)
            let again = try DurableQueue(path: queue.path, maximumCount: 1_000, maximumBytes: 1 << 20)
            #expect(again.all(of: .exposure).count == 1)
            #expect(again.all(of: .goal).count == 20)
        }
    }
#endif
