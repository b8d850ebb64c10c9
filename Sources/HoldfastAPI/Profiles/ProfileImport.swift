import Bucketing
import HTTPServer
import Storage

/// One import in progress: lines become changes as they arrive; reading pauses while many wait for their commit.
/// Belongs to the connection's event loop.
final class ProfileImport: BodyReceiver {
    private struct Refusal {
        let line: Int
        let problem: Problem
    }

    private let store: any ProfileStore
    private let call: Call
    private let rule: ProfileChange.ConflictRule
    private let window: Int
    private let lineLimit: Int
    private var splitter: LineSplitter
    private var lines = 0
    private var imported = 0
    private var refused = 0
    private var refusals: [Refusal] = []
    private var waiting = 0
    private var isPaused = false
    private var hasEnded = false
    private var isAnswered = false
    /// The first line that the store failed to take, and why; nothing is submitted after it.
    private var failure: (line: Int, error: StorageError)?

    /// Refused lines that an answer names; more are only counted.
    private static let namedRefusals = 1_000

    init(store: any ProfileStore, call: Call, rule: ProfileChange.ConflictRule, window: Int, lineLimit: Int) {
        self.store = store
        self.call = call
        self.rule = rule
        self.window = window
        self.lineLimit = lineLimit
        splitter = LineSplitter(limit: lineLimit)
    }

    func received(_ bytes: UnsafeRawBufferPointer) -> Bool {
        splitter.append(bytes) { take($0) }
        isPaused = waiting >= window
        return !isPaused
    }

    func ended() {
        splitter.end { take($0) }
        hasEnded = true
        answerIfDone()
    }

    /// The client went away; what was submitted is stored all the same, as it would be had the client sent it alone.
    func aborted() {
        isAnswered = true
    }

    private func take(_ line: UnsafeRawBufferPointer?) {
        lines += 1
        guard failure == nil else { return }
        let number = lines
        do throws(Problem) {
            guard let line else {
                throw Problem(.contentTooLarge, "the line is longer than \(lineLimit) bytes")
            }
            if let change = try ProfileLine.parse(line, rule) { submit(change, number) }
        } catch {
            refuse(number, error)
        }
    }

    private func submit(_ change: ProfileChange, _ line: Int) {
        waiting += 1
        let handover = Handover(import: self)
        let responder = call.responder
        store.submit(change) { result in
            let error: StorageError? = if case .failure(let error) = result { error } else { nil }
            responder.onEventLoop { handover.import.finished(line, error) }
        }
    }

    private func finished(_ line: Int, _ error: StorageError?) {
        waiting -= 1
        switch error {
        case nil: imported += 1
        case .tooManyAssignments(let limit): refuse(line, Problem(.tooManyAssignments(limit: limit)))
        case let error?: failure = failure.map { $0.line < line ? $0 : (line, error) } ?? (line, error)
        }
        if isPaused, waiting <= window / 2 {
            isPaused = false
            call.responder.resumeReading()
        }
        answerIfDone()
    }

    private func refuse(_ line: Int, _ problem: Problem) {
        refused += 1
        if refusals.count < Self.namedRefusals { refusals.append(Refusal(line: line, problem: problem)) }
    }

    private func answerIfDone() {
        guard hasEnded, waiting == 0, !isAnswered else { return }
        isAnswered = true
        if let failure {
            var problem = Problem(failure.error)
            problem.detail += "; the import stopped at line \(failure.line), and may be sent again from there"
            problem.members = [
                ("imported", .integer(Int64(imported))), ("refused", .integer(Int64(refused))),
                ("line", .integer(Int64(failure.line))),
            ]
            call.fail(problem)
        } else {
            call.answer(json: summary())
        }
    }

    /// `{"imported":…,"refused":…,"errors":[{"line":…,"detail":…,"pointer":…}]}`
    private func summary() -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("imported")
        writer.integer(imported)
        writer.key("refused")
        writer.integer(refused)
        writer.key("errors")
        writer.beginArray()
        for refusal in refusals.sorted(by: { $0.line < $1.line }) {
            writer.beginObject()
            writer.key("line")
            writer.integer(refusal.line)
            writer.key("detail")
            writer.string(refusal.problem.detail)
            if let pointer = refusal.problem.pointer {
                writer.key("pointer")
                writer.string(pointer.string)
            }
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }
}

/// An import as the store's completions hold it. Safe: they only bring it back to its event loop.
private struct Handover: @unchecked Sendable {
    let `import`: ProfileImport
}
