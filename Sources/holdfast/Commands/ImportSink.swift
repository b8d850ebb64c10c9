import Bucketing
import Chronology
import Definitions
import Dispatch
import HoldfastCore
import Storage
import Synchronization

/// The destination of an import: ``ImportedProfiles`` stores the profiles, ``ImportPreview`` only compares them.
protocol ImportSink: AnyObject {
    /// Processes the next element, unless there was a failure.
    func take(_ element: ImportedElement)

    /// Completes the import, and prints the refusals.
    func finish()

    /// The number of elements that are stored, or would be.
    var imported: Int { get }
    /// The number of elements that are refused, or would be.
    var refused: Int { get }
    /// Why the import cannot continue; `nil` if it can.
    var failure: String? { get }
    /// The result in a sentence, for standard output.
    var summary: String { get }
}

/// The lines that an import refused. It keeps the first ones with their reasons, and counts the others.
struct Refusals {
    /// The number of lines that are kept.
    static let limit = 20

    private(set) var count = 0
    /// The first lines, in their order.
    private var first: [(place: ImportedElement.Place, reason: String)] = []

    /// Adds a line. Lines may come in any order, because the store refuses lines later than the parser does.
    mutating func add(_ place: ImportedElement.Place, _ reason: String) {
        count += 1
        let index = first.firstIndex { $0.place > place } ?? first.endIndex
        first.insert((place, reason), at: index)
        if first.count > Self.limit { first.removeLast() }
    }

    /// Returns the list of refusals for standard error.
    func text(isPreview: Bool = false) -> String {
        let named = first.map { "\($0.place) \(isPreview ? "would be" : "was") refused: \($0.reason)\n" }.joined()
        guard count > first.count else { return named }
        return named + "\(count - first.count) more lines \(isPreview ? "would be" : "were") refused\n"
    }
}

/// Stores profiles, many in one transaction.
final class ImportedProfiles: ImportSink {
    /// The outcome so far, which the completions of the store update.
    private struct Outcome {
        var imported = 0
        var refusals = Refusals()
        var failure: String?

        mutating func count(_ result: Result<ProfileChangeResult, StorageError>, of place: ImportedElement.Place) {
            switch result {
            // If the user was erased meanwhile, the result is the same as storing the line just before the erasure.
            case .success, .failure(.erased): imported += 1
            case .failure(let error) where error.concernsOneUser: refusals.add(place, error.description)
            case .failure(let error): failure = failure ?? "\(place): \(error)"
            }
        }
    }

    /// The number of profiles that are submitted together.
    private static let groupSize = 256
    /// The maximum number of groups that wait for their commit, to bound memory.
    private static let maximumWaitingGroups = 8

    private let session: BackgroundSession
    private let rule: ProfileChange.ConflictRule
    /// Counts the groups that may still be submitted.
    private let freeGroups = DispatchSemaphore(value: ImportedProfiles.maximumWaitingGroups)
    private let outcome = SharedState(Outcome())
    private let progress = Progress("imported")
    /// The profiles that are collected and not yet submitted, each with its place in the input.
    private var group: [(place: ImportedElement.Place, change: ProfileChange)] = []

    init(_ session: BackgroundSession, keep: Bool) {
        self.session = session
        rule = keep ? .keep : .replace
    }

    var imported: Int { outcome.withLock { $0.imported } }
    var refused: Int { outcome.withLock { $0.refusals.count } }
    var failure: String? { outcome.withLock { $0.failure } }
    var summary: String { "imported \(imported), refused \(refused)" }

    func take(_ element: ImportedElement) {
        guard failure == nil else { return }
        switch element.content {
        case .refused(let error): outcome.withLock { $0.refusals.add(element.place, error.description) }
        case .profile(let profile):
            group.append((element.place, profile.change(onConflict: rule)))
            if group.count == Self.groupSize { submitGroup() }
        }
    }

    /// Submits the profiles that are collected, and blocks while too many groups wait for their commit.
    private func submitGroup() {
        freeGroups.wait()
        let places = group.map(\.place)
        session.run { [changes = group.map(\.change), outcome, freeGroups] session in
            session.submit(changes, by: .processUser) { results in
                outcome.withLock { outcome in
                    for (place, result) in zip(places, results) { outcome.count(result, of: place) }
                }
                freeGroups.signal()
            }
        }
        progress.add(group.count)
        group.removeAll(keepingCapacity: true)
    }

    func finish() {
        if failure == nil, !group.isEmpty { submitGroup() }
        for _ in 0..<Self.maximumWaitingGroups { freeGroups.wait() }
        // All groups are committed now. Dispatch requires that a semaphore has its initial value when it is released.
        for _ in 0..<Self.maximumWaitingGroups { freeGroups.signal() }
        progress.finish()
        OpenFile.printError(outcome.withLock { $0.refusals.text() })
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
