import ArgumentParser
import Dispatch
import Foundation
import HoldfastAPI
import Storage
import StorageSQLite
import Synchronization

/// Merges profiles from NDJSON on standard input into the database.
struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Merges profiles from standard input, one JSON object a line, while servers use the database.",
        discussion: "Lines that are refused are named on standard error, and make the exit status 1.")

    @OptionGroup var database: DatabaseOptions
    @OptionGroup var rules: ProfileRuleOptions

    @Flag(help: "Keep what is stored where it differs.")
    var keep = false

    func run() throws {
        let environment = ProcessInfo.processInfo.environment
        let rules = try rules.rules(environment: environment)
        let store = try StoreFactory.open(database.path(environment: environment), rules)
        defer { store.close() }
        let lines = ImportedLines(store, keep: keep)
        var splitter = LineSplitter(limit: 1 << 20)
        while let data = try FileHandle.standardInput.read(upToCount: 256 * 1024), !data.isEmpty {
            data.withUnsafeBytes { bytes in splitter.append(bytes) { lines.take($0) } }
            if lines.failure != nil { break }
        }
        splitter.end { lines.take($0) }
        lines.finish()
        if let failure = lines.failure { throw Failure("\(failure); \(lines.imported) lines were imported") }
        print("imported \(lines.imported), refused \(lines.refused)")
        if lines.refused > 0 { throw ExitCode(1) }
    }
}

/// The lines of one import, some of them on their way into the store.
private final class ImportedLines {
    private struct Outcome {
        var imported = 0
        var refused: [(line: Int, reason: String)] = []
        var failure: String?

        mutating func count(_ result: Result<ProfileChangeResult, StorageError>, of line: Int) {
            switch result {
            case .success: imported += 1
            case .failure(let error) where error.concernsOneUser: refused.append((line, error.description))
            case .failure(let error): failure = failure ?? "line \(line): \(error)"
            }
        }
    }

    /// Lines that are submitted together.
    private static let groupSize = 256
    /// Groups that wait for their commit.
    private static let window = 8

    private let store: any ProfileStore
    private let keep: Bool
    private let places = DispatchSemaphore(value: ImportedLines.window)
    private let outcome = SharedState(Outcome())
    private let progress = Progress("imported")
    private var number = 0
    private var group: [(line: Int, change: ProfileChange)] = []
    private(set) var refused = 0

    init(_ store: any ProfileStore, keep: Bool) {
        self.store = store
        self.keep = keep
    }

    var imported: Int { outcome.withLock { $0.imported } }
    var failure: String? { outcome.withLock { $0.failure } }

    func take(_ line: UnsafeRawBufferPointer?) {
        number += 1
        guard failure == nil else { return }
        do throws(ProfileLine.Refusal) {
            guard let line else { return refuse(number, "the line is too long") }
            guard let change = try ProfileLine.change(from: line, onConflict: keep ? .keep : .replace) else { return }
            group.append((number, change))
            if group.count == Self.groupSize { submitGroup() }
        } catch {
            refuse(number, error.description)
        }
    }

    private func submitGroup() {
        places.wait()
        let lines = group.map(\.line)
        store.submit(group.map(\.change)) { [outcome, places] results in
            outcome.withLock { outcome in
                for (line, result) in zip(lines, results) { outcome.count(result, of: line) }
            }
            places.signal()
        }
        progress.add(group.count)
        group.removeAll(keepingCapacity: true)
    }

    private func refuse(_ line: Int, _ reason: String) {
        refused += 1
        FileHandle.standardError.write(Data("line \(line) was refused: \(reason)\n".utf8))
    }

    /// Submits the rest and waits for all.
    func finish() {
        if failure == nil, !group.isEmpty { submitGroup() }
        for _ in 0..<Self.window { places.wait() }
        for _ in 0..<Self.window { places.signal() }
        progress.finish()
        for (line, reason) in outcome.withLock({ $0.refused }) { refuse(line, reason) }
    }
}

/// A value behind a lock, shared with completions.
private final class SharedState<Value: Sendable>: Sendable {
    private let value: Mutex<Value>

    init(_ value: Value) {
        self.value = Mutex(value)
    }

    func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result {
        value.withLock { body(&$0) }
    }
}
