import Bucketing
import Chronology
import Definitions
import Storage

/// Counts the users of an experiment (its participants) one by one, in pages of the store. Used for a ``ResultsFilter``
/// for which the store has no totals.
struct ParticipantCount: Sendable {
    let scan: ParticipantScan
    /// The names of the totals to sum: of a goal, a metric, or the steps of a funnel.
    let names: [Identifier]
    /// The allocation periods of the experiment.
    let periods: [AllocationPeriod]
    /// The test of the segment; `nil` for all users.
    let matcher: SegmentMatcher?
    /// The index of the group whose users count, from 1; `nil` for all users. With a group, the scan reads one total
    /// more than there are ``names``: the last total of a participant is the index of the participant's group.
    let group: Int?
    /// The computation over events, if only some events count; `nil` to use the stored totals.
    let shortened: ShortenedSeries?

    /// The sums of the participants that were read.
    private struct Sums {
        var users: [Cohort: UserCounts] = [:]
        /// The sums of each of ``names``.
        var goals: [[Key: GoalTally]]

        /// The totals of a goal are summed by variation and day of enrollment.
        struct Key: Hashable {
            var variationID: Identifier
            var day: Int64
        }
    }

    /// Reads and counts all participants.
    ///
    /// - Returns: a tally for each of ``names``.
    func run(_ session: any StoreSession) async throws(StorageError) -> [ExperimentTally] {
        var scan = scan
        var sums = Sums(goals: Array(repeating: [:], count: names.count))
        repeat {
            let page = try await session.read(.participants(scan))
            var events = ParticipantEvents()
            if let shortened, let last = page.participants.last?.userID {
                events = try await session.read(.events(shortened, of: scan, through: last))
            }
            for participant in page.participants where counts(participant) {
                add(participant, events, to: &sums)
            }
            scan.after = page.end
            // Lets other tasks run between the pages.
            await Task.yield()
        } while scan.after != nil
        return tallies(of: sums)
    }

    /// Adds a participant to the sums.
    private func add(_ participant: Participant, _ events: ParticipantEvents, to sums: inout Sums) {
        let cohort = participant.cohort
        sums.users[cohort, default: UserCounts()] += participant.users
        guard participant.users.counted > 0 else { return }
        let totals = Array(participant.totals.prefix(names.count))
        let tallies =
            shortened?.tallies(of: participant, events, totals: totals)
            ?? zip(names, totals).map { name, total in total.map { $0.tally(of: name) } }
        let key = Sums.Key(variationID: cohort.variationID, day: cohort.day)
        for (index, tally) in tallies.enumerated() {
            if let tally { sums.goals[index][key] = (sums.goals[index][key] ?? GoalTally()) + tally }
        }
    }

    /// Returns a tally for each of ``names``.
    private func tallies(of sums: Sums) -> [ExperimentTally] {
        let users = sums.users.map { (cohort: $0, counts: $1) }
        return sums.goals.map { goal in
            let rows = goal.map { (variationID: $0.variationID, day: $0.day, tally: $1) }
            return ExperimentTally(periods: periods, users: users, goals: rows)
        }
    }

    /// Whether a participant is in the segment and in the group.
    private func counts(_ participant: Participant) -> Bool {
        if let matcher {
            guard let attributes = participant.attributes, attributes.withUnsafeBytes({ matcher.matches($0) }) else {
                return false
            }
        }
        guard let group else { return true }
        guard let lastTotal = participant.totals.last, let groupTotal = lastTotal else { return false }
        return Int(exactly: groupTotal.afterValue) == group
    }
}
