import ArgumentParser
import struct Bucketing.Identifier
import Dispatch
import Foundation
import HoldfastCore
import Storage
import StorageSQLite
import Synchronization

/// Merges profiles from NDJSON, out of a file or standard input, into the database.
struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Merges profiles from a file, one JSON object a line, into the database, while servers use it.",
        discussion: """
            Lines that are refused make the exit status 1. The first \(ImportedLines.namedRefusals) of them are named on \
            standard error, and the others counted.
            """)

    @Argument(help: "What is imported; standard input if it is '-' or none is named.")
    var file: String?

    @OptionGroup var database: DatabaseOptions
    @OptionGroup var rules: ProfileRuleOptions

    @Flag(help: "Keep what is stored where it differs.")
    var keep = false

    @Flag(help: "Make the database if there is none.")
    var create = false

    func run() throws {
        let environment = ProcessInfo.processInfo.environment
        let rules = try rules.rules(environment: environment)
        let input = try input()
        let path = try database.path(environment: environment)
        guard create || FileManager.default.fileExists(atPath: path) else {
            throw Failure("the database must exist, or --create be given to make it; there is no \(path)")
        }
        let store = try StoreFactory.open(path, rules)
        defer { store.close() }
        let lines = ImportedLines(try BackgroundSession(store, label: "import"), keep: keep)
        var splitter = LineSplitter(limit: ImportedLines.lineLimit)
        var unreadable: String?
        do throws(Failure) {
            while lines.failure == nil, let data = try read(input) {
                data.withUnsafeBytes { bytes in splitter.append(bytes) { lines.take($0) } }
            }
            splitter.end { lines.take($0) }
        } catch {
            unreadable = error.description
        }
        lines.finish()
        if let failure = lines.failure ?? unreadable {
            throw Failure("\(failure); \(lines.imported) lines were imported")
        }
        print("imported \(lines.imported), refused \(lines.refused)")
        if lines.refused > 0 { throw ExitCode(1) }
    }

    private func input() throws -> FileHandle {
        guard let file, file != "-" else { return .standardInput }
        guard !FileManager.default.directoryExists(atPath: file) else {
            throw Failure("the lines to import must be in a file; \(file) is a directory")
        }
        do {
            return try FileHandle(forReadingFrom: URL(fileURLWithPath: file))
        } catch {
            throw unreadable(error)
        }
    }

    /// The next piece; `nil` at the end.
    private func read(_ input: FileHandle) throws(Failure) -> Data? {
        do {
            let data = try input.read(upToCount: 256 * 1024)
            return data?.isEmpty == true ? nil : data
        } catch {
            throw unreadable(error)
        }
    }

    private func unreadable(_ error: any Error) -> Failure {
        let name = file == "-" ? nil : file
        return Failure("\(name ?? "standard input") cannot be read: \(error.localizedDescription)")
    }
}

/// The lines of one import.
private final class ImportedLines {
    private struct Outcome {
        var imported = 0
        var refused = 0
        /// The first of them.
        var refusals: [(line: Int, reason: String)] = []
        var failure: String?

        mutating func count(_ result: Result<ProfileChangeResult, StorageError>, of line: Int) {
            switch result {
            // Erased meanwhile: as if the line had been stored just before.
            case .success, .failure(.erased): imported += 1
            case .failure(let error) where error.concernsOneUser: refuse(line, error.description)
            case .failure(let error): failure = failure ?? "line \(line): \(error)"
            }
        }

        /// The store refuses lines later than the parser.
        mutating func refuse(_ line: Int, _ reason: String) {
            refused += 1
            let place = refusals.firstIndex { $0.line > line } ?? refusals.endIndex
            refusals.insert((line, reason), at: place)
            if refusals.count > ImportedLines.namedRefusals { refusals.removeLast() }
        }
    }

    static let namedRefusals = 20
    /// Bytes of one line.
    static let lineLimit = 1 << 20
    /// Lines that are submitted together.
    private static let groupSize = 256
    /// Groups that wait for their commit.
    private static let window = 8

    private let session: BackgroundSession
    private let keep: Bool
    private let places = DispatchSemaphore(value: ImportedLines.window)
    private let outcome = SharedState(Outcome())
    private let progress = Progress("imported")
    private var number = 0
    private var group: [(line: Int, change: ProfileChange)] = []

    init(_ session: BackgroundSession, keep: Bool) {
        self.session = session
        self.keep = keep
    }

    var imported: Int { outcome.withLock { $0.imported } }
    var refused: Int { outcome.withLock { $0.refused } }
    var failure: String? { outcome.withLock { $0.failure } }

    func take(_ line: UnsafeRawBufferPointer?) {
        number += 1
        guard failure == nil else { return }
        do throws(CoreError) {
            guard let line else { return refuse(number, "a line must be at most \(Self.lineLimit) bytes long") }
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
        session.run { [changes = group.map(\.change), outcome, places] session in
            session.submit(changes) { results in
                outcome.withLock { outcome in
                    for (line, result) in zip(lines, results) { outcome.count(result, of: line) }
                }
                places.signal()
            }
        }
        progress.add(group.count)
        group.removeAll(keepingCapacity: true)
    }

    private func refuse(_ line: Int, _ reason: String) {
        outcome.withLock { $0.refuse(line, reason) }
    }

    /// Submits the rest, waits for all, and prints the refusals.
    func finish() {
        if failure == nil, !group.isEmpty { submitGroup() }
        for _ in 0..<Self.window { places.wait() }
        for _ in 0..<Self.window { places.signal() }
        progress.finish()
        let refusals = outcome.withLock { $0.refusals }
        var text = refusals.map { "line \($0.line) was refused: \($0.reason)\n" }.joined()
        if refused > refusals.count { text += "\(refused - refusals.count) more lines were refused\n" }
        FileHandle.standardError.write(Data(text.utf8))
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

/// Writes all profiles as NDJSON to standard output.
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes all profiles to standard output, one JSON object a line, while servers use the database.")

    @OptionGroup var database: DatabaseOptions

    @Flag(help: "Write with each assignment where it came from.")
    var detail = false

    private static let page = 1_000

    func run() throws {
        let path = try database.path(environment: ProcessInfo.processInfo.environment)
        guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no database \(path)") }
        try DatabaseMaintenance.expectCurrentVersion(path: path)
        let store = try StoreFactory.open(path)
        defer { store.close() }
        let session = try BackgroundSession(store, label: "export")
        defer { session.close() }
        let progress = Progress("exported")
        var last: Identifier?
        repeat {
            let page: ProfilePage
            do throws(StorageError) {
                page = try session.wait { [last] session, done in
                    session.profiles(after: last, limit: Self.page, done)
                }
            } catch {
                throw Failure("the export \(last.map { "ends after '\($0)'" } ?? "cannot begin"): \(error)")
            }
            let lines = page.profiles.flatMap { ProfileLine.encode($0.userID, $0.profile, detail: detail) }
            do {
                try FileHandle.standardOutput.write(contentsOf: Data(lines))
            } catch {
                throw Failure("standard output cannot be written: \(error.localizedDescription)")
            }
            progress.add(page.profiles.count)
            last = page.end
        } while last != nil
        progress.finish()
    }
}

/// Shows a count on standard error while a long command runs, if that is a terminal.
final class Progress {
    private let verb: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private var count = 0
    private var shown = 0

    init(_ verb: String) {
        self.verb = verb
    }

    func add(_ number: Int) {
        count += number
        guard isShown, count - shown >= 10_000 else { return }
        shown = count
        show(end: "\r")
    }

    func finish() {
        if isShown, count > 0 { show(end: "\n") }
    }

    private func show(end: String) {
        FileHandle.standardError.write(Data("\(verb) \(count) profiles\(end)".utf8))
    }
}
