import Bucketing
import Chronology
import Definitions
import HoldfastCore
import Storage

/// Compares profiles with stored ones, by the rules that the store would apply. Each profile is compared independently,
/// without the effects of earlier lines of the import.
final class ImportPreview: ImportSink {
    private let session: BackgroundSession
    private let rules: ProfileRules
    private let rule: ProfileChange.ConflictRule
    private let progress = Progress("compared")
    private var refusals = Refusals()
    private var counts = Counts()
    /// Descriptions of the first assignments that would be overwritten.
    private var overwritten: [String] = []

    private(set) var imported = 0
    private(set) var failure: String?

    /// The numbers of assignments, by the effect that the import would have on them.
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

    /// Applies the rules to a profile, and counts the effects on its assignments.
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

    /// Counts the effect that the import would have on an assignment.
    ///
    /// - Parameter isOverride: whether the import restores an override. Only an override replaces a stored override.
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
