import Foundation
import ProcessTestSupport
import Testing

@testable import HoldfastClient

/// Client processes that are killed by `kill -9`.
@Suite struct CrashTests {
    private let directory: TemporaryDirectory
    private let server: RealServer

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
    }

    private func start(_ mode: String) throws -> Program {
        try Program(
            "client-process", [try server.endpoint.absoluteString, directory.url.path, mode], reading: .standard)
    }

    @Test func `A full queue outlives its process, and arrives once`() async throws {
        try await server.putDatafile(revision: 1)
        let filling = try start("fill")
        #expect(await filling.line { $0 == "filled" } != nil)
        filling.kill()
        #expect(try await server.goalEvents().isEmpty)
        // Another one begins to send and is killed in the midst of it, then one may end its work.
        let sending = try start("send")
        #expect(await sending.line { $0 == "delivered" } != nil)
        sending.kill()
        #expect(try await start("send").end() == .exit(0))

        let goals = try await server.goalEvents()
        #expect(goals.count == 500)
        #expect(Set(goals.compactMap { $0["value"]?.intValue }) == Set(0..<500))
        #expect(try await server.request("GET", "/v1/profiles").split(separator: "\n").count == 100)
        #expect(try await server.exposures().count == 100)
    }

    @Test func `Each event that was taken arrives once, however often the process is killed`() async throws {
        var taken: Set<Int> = []
        for round in 0..<4 {
            let program = try start("track")
            // Killed at another moment each time.
            _ = await program.line { $0.hasSuffix("\(round)7") }
            program.kill()
            taken.formUnion(program.output.compactMap { Int($0) })
        }
        #expect(try await start("send").end() == .exit(0))
        let arrived = try await server.goalEvents().compactMap { $0["value"]?.intValue }
        #expect(Set(arrived).count == arrived.count)
        #expect(taken.isSubset(of: Set(arrived)))
        // One may have been taken in each round whose number could not be written any more.
        #expect(arrived.count <= taken.count + 4)
    }

    @Test func `On a full disk a new app has its flags, and events are dropped and counted`() async throws {
        try await server.putDatafile(revision: 1, controlEnd: 0)
        let program = try start("full")
        // The goal and the exposure.
        #expect(await program.line { _ in true } == "new 2")
        #expect(await program.end() == .exit(0))
    }
}

#if os(Linux)
    /// A client whose disk takes its time.
    @Suite struct SlowDiskTests {
        private let directory: TemporaryDirectory
        private let server: RealServer

        init() async throws {
            directory = try TemporaryDirectory()
            server = try await RealServer()
        }

        @Test func `Events are accepted while the queue's file is synchronized, and are in the rewritten file`()
            async throws
        {
            let queue = directory.url.resolvingSymlinksInPath().appendingPathComponent("queue").appendingPathComponent(
                "queue.log")
            let control = directory.path("control")
            #expect(FileManager.default.createFile(atPath: control, contents: Data(count: 4_096)))
            // As long as the control file is locked, a `fsync` of the new file does not return; see FaultyDisk.c.
            var disk: FileDescriptor? = try FileDescriptor(path: control)
            #expect(disk?.lock() == true)
            let program = try Program(
                "client-process",
                [try server.endpoint.absoluteString, queue.deletingLastPathComponent().path, "compact"],
                environment: [
                    "LD_PRELOAD": Executable.built("libFaultyDisk.so"),
                    "HOLDFAST_FAULTY_CONTROL": control, "HOLDFAST_FAULTY_DATABASE": queue.path + ".new",
                    "HOLDFAST_FAULTY_LOG": directory.path("log"),
                ], reading: .standard)
            #expect(await program.line { $0 == "tracked" } != nil)
            let length = try Data(contentsOf: queue).count
            disk = nil
            #expect(await program.end() == .exit(0))
            #expect(try Data(contentsOf: queue).count < length)
            let again = try DurableQueue(path: queue.path, maximumCount: 1_000, maximumBytes: 1 << 20)
            #expect(again.all(of: .exposure).count == 1)
            #expect(again.all(of: .goal).count == 20)
        }
    }
#endif
