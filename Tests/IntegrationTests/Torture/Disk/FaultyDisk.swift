import APITestSupport
import Foundation
import ProcessTestSupport
import TestSupport

/// The faults of the disk under a server's database, which come and go while the server runs: the tests' end of
/// `Tests/FaultyDisk`.
final class FaultyDisk: @unchecked Sendable {
    // Safe: the slots are words that are written whole, and the rest is used by one thread.

    /// As in `FaultyDisk.h`, in its order.
    enum Slot: Int {
        case writeError, writeFull, writeShort, writeTorn, syncError, syncLoses, syncLies, seed
        case failedWrites, failedSyncs, writes, syncs, logLength
        /// Two slots after the length, which has 64 bits.
        case readsHang = 14
    }

    private static let bytes = 4_096
    /// The library lies beside the server.
    private static let library = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent()
        .appendingPathComponent("libFaultyDisk.so").path

    private let database: String
    private let control: String
    private let log: String?
    private let slots: UnsafeMutablePointer<UInt32>
    private var powerLoss: PowerLoss?

    /// - Parameter tracksWrites: whether power can be lost.
    init(under database: String, tracksWrites: Bool, seed: UInt64) throws {
        self.database = database
        control = database + ".faults"
        log = tracksWrites ? database + ".writes" : nil
        guard FileManager.default.createFile(atPath: control, contents: Data(count: Self.bytes)) else {
            throw TestFailure("\(control) cannot be made")
        }
        let descriptor = open(control, O_RDWR | O_CLOEXEC)
        defer { close(descriptor) }
        guard descriptor >= 0,
            let memory = mmap(nil, Self.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), memory != MAP_FAILED
        else { throw TestFailure("\(control) cannot be mapped") }
        slots = memory.bindMemory(to: UInt32.self, capacity: Self.bytes / 4)
        self[.seed] = UInt32(truncatingIfNeeded: seed)
    }

    deinit {
        munmap(slots, Self.bytes)
    }

    /// What a server on this disk is started with.
    var environment: [String: String] {
        var environment = [
            "LD_PRELOAD": Self.library, "HOLDFAST_FAULTY_CONTROL": control,
            // As the kernel names it.
            "HOLDFAST_FAULTY_DATABASE": URL(fileURLWithPath: database).resolvingSymlinksInPath().path,
        ]
        environment["HOLDFAST_FAULTY_LOG"] = log
        return environment
    }

    subscript(slot: Slot) -> UInt32 {
        get { slots[slot.rawValue] }
        set { slots[slot.rawValue] = newValue }
    }

    /// Faults that have come up so far.
    var faults: Int { Int(self[.failedWrites]) + Int(self[.failedSyncs]) }

    /// Fails from now on, each operation by the same chance in a thousand.
    func fail(_ kinds: [Slot], chance: UInt32) {
        for kind in kinds { self[kind] = chance }
    }

    /// Fails no more.
    func heal() {
        for kind in [Slot.writeError, .writeFull, .writeShort, .writeTorn, .syncError] { self[kind] = 0 }
    }

    /// Takes what is in the files for what is on the disk, before a server is started.
    func takeStock() throws {
        guard let log else { return }
        powerLoss = PowerLoss(database: database)
        (slots + Slot.logLength.rawValue).withMemoryRebound(to: UInt64.self, capacity: 1) { $0.pointee = 0 }
        try? FileManager.default.removeItem(atPath: log)
    }

    /// Leaves of what servers wrote, which have been killed, what a loss of power may leave.
    func losePower(using random: inout SeededGenerator) throws {
        guard let log, let powerLoss else { return }
        let length = (slots + Slot.logLength.rawValue).withMemoryRebound(to: UInt64.self, capacity: 1) { $0.pointee }
        let records = FileManager.default.contents(atPath: log) ?? Data()
        guard records.count >= length else { throw TestFailure("the log of writes is not whole") }
        try powerLoss.strike(after: Array(records.prefix(Int(length))), using: &random)
    }
}
