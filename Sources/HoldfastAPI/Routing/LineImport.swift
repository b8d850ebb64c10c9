import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// One import in progress, of profiles or of attributes with one JSON object per line. It parses lines into changes as
/// they arrive, submits them in groups, and pauses reading while many wait for their commit. So an import of any size
/// needs little memory. Belongs to the connection's event loop.
///
/// An invalid line is refused, and does not affect the others. If the store fails, the import stops, and the response
/// names the line from which the sender should send again.
final class LineImport<Change>: BodyReceiver {
    /// Changes that were parsed but not submitted.
    private struct Group {
        var changes: [Change] = []
        /// The number of the line of each change.
        var lines: [Int] = []
        /// The size of the lines in bytes.
        var bytes = 0
    }

    private let call: Call
    /// Returns the change that a line requests.
    private let parse: (UnsafeRawBufferPointer) throws(CoreError) -> Change
    /// Stores changes, and returns the outcome of each.
    private let submit: ([Change]) async -> [LineOutcome]
    private var group = Group()
    /// The maximum number of lines that wait for their commit. Beyond it reading pauses.
    private let window: Int
    /// The maximum length of a line in bytes.
    private let lineLimit: Int
    /// Splits the received bytes into lines.
    private var splitter: LineSplitter
    /// The number of lines that were read.
    private var lines = 0
    /// The number of lines that were accepted, including those that changed nothing.
    private var imported = 0
    /// The number of imported lines that changed nothing; `nil` if the response does not report it.
    private var unchanged: Int?
    private var refused = 0
    /// The refused lines in the format of the response.
    private var refusals: [(line: Int, json: JSONValue)] = []
    /// The size of ``refusals`` in bytes of JSON.
    private var refusalBytes = 0
    /// Whether the first line was refused, and looks like several lines without their line feeds.
    private var seemsJoined = false
    /// The number of lines that were submitted but not committed, and their size in bytes.
    private var waiting = 0
    private var waitingBytes = 0
    private var isPaused = false
    private var hasEnded = false
    private var hasResponded = false
    /// The first line that the store failed to store, and the error. Later lines are not submitted.
    private var failure: (line: Int, error: StorageError)?

    /// The maximum number of refused lines in a response, and about the maximum of their size in bytes. Further lines
    /// are only counted.
    private static var namedRefusals: Int { 1_000 }
    private static var namedRefusalBytes: Int { 1 << 20 }
    /// The maximum size in bytes of lines that wait for their commit. Beyond it reading pauses.
    private static var windowBytes: Int { 4 << 20 }
    /// The maximum number of lines that are submitted together.
    private static var groupLimit: Int { 256 }

    /// - Parameters:
    ///   - tellsUnchanged: whether the response has the number of imported lines that changed nothing.
    ///   - parse: returns the change that a line requests.
    ///   - submit: stores changes, and returns the outcome of each.
    init(
        call: Call, options: Services.Options, tellsUnchanged: Bool = false,
        parse: @escaping (UnsafeRawBufferPointer) throws(CoreError) -> Change,
        submit: @escaping ([Change]) async -> [LineOutcome]
    ) {
        self.call = call
        self.parse = parse
        self.submit = submit
        window = options.importWindow
        lineLimit = options.importLineBytes
        unchanged = tellsUnchanged ? 0 : nil
        splitter = LineSplitter(limit: lineLimit)
    }

    // MARK: Receiving

    var heldBytes: Int { splitter.heldBytes }

    func received(_ bytes: UnsafeRawBufferPointer) -> Bool {
        splitter.append(bytes) { take($0, $1) }
        submitGroup()
        isPaused = waiting >= window || waitingBytes >= Self.windowBytes
        return !isPaused
    }

    func ended() {
        splitter.end { take($0, $1) }
        submitGroup()
        hasEnded = true
        if let response = response() { call.respond(response) }
    }

    /// Called when the client has disconnected. Submitted changes are still stored, but there is no response.
    func aborted() {
        hasResponded = true
    }

    /// Adds a line to the group, or refuses it.
    ///
    /// - Parameter line: `nil` if it is longer than ``lineLimit``.
    private func take(_ number: Int, _ line: UnsafeRawBufferPointer?) {
        lines = number
        guard failure == nil else { return }
        do throws(CoreError) {
            guard let line else {
                throw CoreError(.tooLarge, "a line must be at most \(lineLimit) bytes long")
            }
            guard !LineSplitter.isBlank(line) else { return }
            group.changes.append(try parse(line))
            group.lines.append(number)
            group.bytes += line.count
            if group.lines.count == Self.groupLimit { submitGroup() }
        } catch {
            // A first line over the limit is more likely a file whose line feeds were lost than one long profile.
            if number == 1 { seemsJoined = line.map(LineSplitter.holdsSeveralObjects) ?? true }
            refuse(number, error)
        }
    }

    // MARK: Storing

    /// Submits the lines of the group. A task waits for their commit.
    private func submitGroup() {
        guard !group.lines.isEmpty else { return }
        let submitted = group
        group = Group()
        waiting += submitted.lines.count
        waitingBytes += submitted.bytes
        call.responder.send { [self] in committed(submitted, await submit(submitted.changes)) }
    }

    /// Counts the outcomes of a group, and resumes reading if few lines wait.
    ///
    /// - Returns: the response, after the last line.
    private func committed(_ submitted: Group, _ outcomes: [LineOutcome]) -> Response? {
        waiting -= submitted.lines.count
        waitingBytes -= submitted.bytes
        for (line, outcome) in zip(submitted.lines, outcomes) { count(outcome, of: line) }
        // Resumes only when half of the window is free, so that reading does not pause again at once.
        if isPaused, waiting <= window / 2, waitingBytes <= Self.windowBytes / 2 {
            isPaused = false
            call.responder.resumeReading()
        }
        return response()
    }

    /// Counts the outcome of a line.
    private func count(_ outcome: LineOutcome, of line: Int) {
        switch outcome {
        case .changed: imported += 1
        case .unchanged:
            imported += 1
            unchanged? += 1
        case .refused(let error): refuse(line, error)
        case .failed(let error):
            // Groups may be committed in another order than they were submitted. The first failed line counts.
            if let failure, failure.line < line { return }
            failure = (line, error)
        }
    }

    /// Counts a refused line, and adds its error to the response if there is room.
    private func refuse(_ line: Int, _ error: CoreError) {
        refused += 1
        guard refusals.count < Self.namedRefusals, refusalBytes < Self.namedRefusalBytes else { return }
        let json = Self.refusal(of: line, error)
        refusals.append((line, json))
        refusalBytes += json.encoded().count
    }

    private static func refusal(of line: Int, _ error: CoreError) -> JSONValue {
        let problem = Problem(error)
        var refusal = JSONObject()
        refusal["line"] = .integer(Int64(line))
        refusal["detail"] = .string(problem.detail)
        refusal["pointer"] = problem.pointer.map { .string($0.string) }
        for member in problem.members { refusal[member.key] = member.value }
        return .object(refusal)
    }

    // MARK: The response

    /// Returns the response after the last line; `nil` before that, or if the client has disconnected.
    private func response() -> Response? {
        guard hasEnded, waiting == 0, !hasResponded else { return nil }
        hasResponded = true
        if let failure {
            var problem = Problem(failure.error)
            problem.detail += "; the import stopped at line \(failure.line); send it again from there"
            problem.members = [
                ("imported", .integer(Int64(imported))), ("refused", .integer(Int64(refused))),
                ("line", .integer(Int64(failure.line))),
            ]
            return problem.response(on: call.pattern)
        }
        if refused > 0, imported == 0 { return nothingImported().response(on: call.pattern) }
        var response = JSONObject()
        for member in summary() { response[member.key] = member.value }
        return .json(.object(response))
    }

    /// Returns the error of an import whose lines were all refused.
    private func nothingImported() -> Problem {
        let found = refused == 1 ? "the only one was refused" : "all \(refused) were refused"
        var problem = Problem(.unprocessableContent, "at least one line must be accepted; \(found)")
        if lines == 1, seemsJoined {
            problem.detail +=
                "; each object must be on a line of its own (with curl, send the file with --data-binary: -d removes line feeds)"
        }
        problem.members = summary()
        return problem
    }

    /// Returns the members of the response:
    /// `"imported":…,"refused":…,"errors":[{"line":…,"detail":…,"pointer":…}],"errors_left_out":…`
    private func summary() -> [(key: String, value: JSONValue)] {
        var members: [(key: String, value: JSONValue)] = [("imported", .integer(Int64(imported)))]
        if let unchanged { members.append(("unchanged", .integer(Int64(unchanged)))) }
        members.append(("refused", .integer(Int64(refused))))
        members.append(("errors", .array(refusals.sorted { $0.line < $1.line }.map(\.json))))
        // Without this count the sender would assume that refused lines that are not listed were imported.
        let leftOut = refused - refusals.count
        if leftOut > 0 { members.append(("errors_left_out", .integer(Int64(leftOut)))) }
        return members
    }
}

/// The outcome of one line of an import.
enum LineOutcome: Sendable {
    case changed
    /// The values of the line had already been stored.
    case unchanged
    case refused(CoreError)
    /// The store failed; the import stops.
    case failed(StorageError)

    init(_ error: StorageError) {
        switch error {
        // The user was erased during the import. The line counts as if it had been stored just before.
        case .erased: self = .changed
        default: self = error.concernsOneUser ? .refused(CoreError(error)) : .failed(error)
        }
    }
}
