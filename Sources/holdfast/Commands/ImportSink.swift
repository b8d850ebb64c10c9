import Bucketing
import Chronology
import Definitions
import Dispatch
import HoldfastCore
import Storage
import Synchronization

/// Receives the profiles of an import: stores them, or only compares them.
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
    var summary: String { get }
}

/// The lines that an import refused. It keeps the first ones with their reasons, and counts the others.
struct Refusals {
    /// The number of lines that are kept.
    static let limit = 20

    private(set) var count = 0
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
    /// The maximum number of groups that wait for their commit.
    private static let window = 8

    private let session: BackgroundSession
    private let rule: ProfileChange.ConflictRule
    /// Counts the groups that may still be submitted.
    private let freeGroups = DispatchSemaphore(value: ImportedProfiles.window)
    private let outcome = SharedState(Outcome())
    private let progress = Progress("imported")
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
        for _ in 0..<Self.window { freeGroups.wait() }
        // Dispatch requires that a semaphore has its initial value when it is released.
        for _ in 0..<Self.window { freeGroups.signal() }
        progress.finish()
        OpenFile.printError(outcome.withLock { $0.refusals.text() })
    }
}

/// Compares profiles with stored ones, by the rules that the store would apply. Each profile is compared independently,
/// without the effects of earlier lines of the import.
final class ImportPreview: ImportSink {
    private let session: BackgroundSession
    private let rules: ProfileRules
    private let rule: ProfileChange.ConflictRule
    private let progress = Progress("compared")
    private var refusals = Refusals()
    private var counts = Counts()
    /// The first assignments that would be overwritten.
    private var overwritten: [String] = []

    private(set) var imported = 0
    private(set) var failure: String?

    /// The numbers of assignments by what the import would do with them.
    private struct Counts {
        var new = 0
        var unchanged = 0
        var overwritten = 0
        /// Another variation is stored and stays, because of `--keep`.
        var kept = 0
        /// Another variation is stored and stays, because it is an override.
        var overrides = 0
    }

    init(_ session: BackgroundSession, _ rules: ProfileRules, keep: Bool) {
        self.session = session
        self.rules = rules
        rule = keep ? .keep : .replace
    }

    var refused: Int { refusals.count }

    var summary: String {
        """
        would import \(imported), refuse \(refused); nothing was stored
        assignments: \(counts.new) new, \(counts.unchanged) unchanged, \(counts.overwritten) overwritten, \
        \(counts.kept) kept as stored, \(counts.overrides) kept as overrides
        """
    }

    func take(_ element: ImportedElement) {
        guard failure == nil else { return }
        switch element.content {
        case .refused(let error): refusals.add(element.place, error.description)
        case .profile(let profile): compare(profile, at: element.place)
        }
    }

    /// Applies the rules to a profile, and counts what they would do with its assignments.
    private func compare(_ profile: ProfileInput, at place: ImportedElement.Place) {
        do throws(StorageError) {
            let stored = try session.wait { [userID = profile.userID] session, completion in
                session.profile(of: userID, completion)
            }
            let now = systemWallClock()
            _ = try rules.apply(profile.change(onConflict: rule), to: stored, at: now)
            imported += 1
            progress.add(1)
            let visible = stored?.visible(at: now)
            for entry in profile.assignments.entries {
                count(
                    entry, visible?[entry.experimentID], isOverride: profile.restoresOverride(in: entry.experimentID),
                    of: profile.userID, at: place)
            }
        } catch {
            guard error.concernsOneUser else {
                failure = "\(place): \(error)"
                return
            }
            refusals.add(place, error.description)
        }
    }

    /// - Parameter isOverride: whether the import restores an override, which replaces a stored one.
    private func count(
        _ entry: ExperimentBucketMap.Entry, _ stored: Assignment?, isOverride: Bool, of userID: Identifier,
        at place: ImportedElement.Place
    ) {
        guard let stored else {
            counts.new += 1
            return
        }
        if stored.variationID == entry.variationID {
            counts.unchanged += 1
        } else if stored.source == .override, !isOverride {
            counts.overrides += 1
        } else if rule == .keep {
            counts.kept += 1
        } else {
            counts.overwritten += 1
            guard overwritten.count < Refusals.limit else { return }
            overwritten.append(
                "\(place) would overwrite the experiment \(entry.experimentID) of '\(userID)': "
                    + "'\(stored.variationID)' becomes '\(entry.variationID)'\n")
        }
    }

    func finish() {
        progress.finish()
        var text = refusals.text(isPreview: true)
        text += overwritten.joined()
        if counts.overwritten > overwritten.count {
            text += "\(counts.overwritten - overwritten.count) more assignments would be overwritten\n"
        }
        OpenFile.printError(text)
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
