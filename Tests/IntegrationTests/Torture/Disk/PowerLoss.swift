import APITestSupport
import Foundation
import ProcessTestSupport
import TestSupport

/// Computes what is on a disk after a loss of power: what was synchronised, and of all that was written since, any part.
/// Names in the directory are taken to be there as soon as they are made or removed.
struct PowerLoss {
    /// What becomes of writes that were not synchronised.
    private enum Survival: CaseIterable {
        case none, all, first, some, someSectors
    }

    private struct Write {
        enum Kind {
            case bytes(Range<Int>)
            case truncation
        }

        let kind: Kind
        let offset: Int
    }

    private struct DiskFile {
        let path: String
        /// What is sure to be on disk; `nil`: there is no file.
        var image: [UInt8]?
        var pending: [Write] = []
    }

    private static let sector = 512
    private let files: [DiskFile]
    private let sharedMemory: String

    /// - Parameter database: whose files are now as they are on disk.
    init(database: String) {
        sharedMemory = database + "-shm"
        // In the order of the numbers in the log.
        files = ["", "-wal", "-journal"].map { suffix in
            let path = database + suffix
            return DiskFile(path: path, image: FileManager.default.contents(atPath: path).map(Array.init))
        }
    }

    /// Rewrites the files after what the log of `FaultyDisk.c` tells.
    func strike(after log: [UInt8], using random: inout SeededGenerator) throws {
        var files = files
        try Self.replay(log, on: &files)
        for index in files.indices {
            let survival = Survival.allCases.randomElement(using: &random) ?? .none
            Self.keep(survival, of: &files[index], from: log, using: &random)
            try Self.store(files[index])
        }
        // Nobody synchronises the shared memory; anything may be in it.
        let garbage = [UInt8](repeating: UInt8.random(in: .min ... .max, using: &random), count: 32_768)
        try Data(garbage).write(to: URL(fileURLWithPath: sharedMemory))
    }

    private static func replay(_ log: [UInt8], on files: inout [DiskFile]) throws {
        var position = 0
        while position + 24 <= log.count {
            let (kind, file) = log.withUnsafeBytes {
                (
                    $0.loadUnaligned(fromByteOffset: position, as: UInt32.self),
                    Int($0.loadUnaligned(fromByteOffset: position + 4, as: UInt32.self))
                )
            }
            let (offset, length) = log.withUnsafeBytes {
                (
                    Int($0.loadUnaligned(fromByteOffset: position + 8, as: UInt64.self)),
                    Int($0.loadUnaligned(fromByteOffset: position + 16, as: UInt64.self))
                )
            }
            position += 24
            switch Unicode.Scalar(kind) {
            case "W":
                files[file].pending.append(Write(kind: .bytes(position..<position + length), offset: offset))
                position += length
            case "T":
                files[file].pending.append(Write(kind: .truncation, offset: length))
            case "S":
                keep(.all, of: &files[file], from: log)
            case "L":
                files[file].pending = []
            case "U":
                files[file].image = nil
                files[file].pending = []
            default:
                throw TestFailure("the log of writes has a record of an unknown kind, \(kind)")
            }
        }
    }

    private static func keep(_ survival: Survival, of file: inout DiskFile, from log: [UInt8]) {
        var random = SeededGenerator(seed: 0)
        keep(survival, of: &file, from: log, using: &random)
    }

    private static func keep(
        _ survival: Survival, of file: inout DiskFile, from log: [UInt8], using random: inout SeededGenerator
    ) {
        let writes = file.pending
        file.pending = []
        let end = survival == .first ? Int.random(in: 0...writes.count, using: &random) : writes.count
        for write in writes[..<end] where survival != .none {
            if survival == .some, Bool.random(using: &random) { continue }
            switch write.kind {
            case .truncation:
                file.image = file.image.map { Array($0.prefix(write.offset)) }
            case .bytes(let range):
                let isWhole = survival != .someSectors
                for piece in isWhole ? [range] : sectors(of: range, at: write.offset) {
                    if !isWhole, Bool.random(using: &random) { continue }
                    copy(log, piece, into: &file.image, at: write.offset + piece.lowerBound - range.lowerBound)
                }
            }
        }
    }

    /// The pieces of a write that a disk writes each as a whole.
    private static func sectors(of range: Range<Int>, at offset: Int) -> [Range<Int>] {
        var pieces: [Range<Int>] = []
        var start = range.lowerBound
        while start < range.upperBound {
            let place = offset + start - range.lowerBound
            let end = min(range.upperBound, start + sector - place % sector)
            pieces.append(start..<end)
            start = end
        }
        return pieces
    }

    private static func copy(_ log: [UInt8], _ range: Range<Int>, into image: inout [UInt8]?, at offset: Int) {
        var bytes = image ?? []
        image = nil
        let end = offset + range.count
        if bytes.count < end { bytes += repeatElement(0, count: end - bytes.count) }
        bytes.replaceSubrange(offset..<end, with: log[range])
        image = bytes
    }

    private static func store(_ file: DiskFile) throws {
        if let image = file.image {
            try Data(image).write(to: URL(fileURLWithPath: file.path))
        } else if FileManager.default.fileExists(atPath: file.path) {
            try FileManager.default.removeItem(atPath: file.path)
        }
    }
}
