import Bucketing
import Chronology
import Definitions
import Statistics
import Storage

extension ExperimentResults {
    /// A reason to distrust the results.
    public struct Warning: Sendable {
        /// The kind of warning, for programs.
        public enum Code: String, Sendable, CaseIterable {
            case controlCheckDiffers = "control_check_differs"
            case fewUsersDominate = "few_users_dominate"
            case filling
            case multipleVariations = "multiple_variations"
            case noConversions = "no_conversions"
            case noExposures = "no_exposures"
            case notRunning = "not_running"
            case sampleRatioMismatch = "sample_ratio_mismatch"
            case someDays = "some_days"
            case someUsers = "some_users"
            case trafficChanged = "traffic_changed"
            case weightsChanged = "weights_changed"
        }

        public var code: Code
        /// The warning as a sentence, for people.
        public var message: String
    }

    // MARK: Verdict

    /// The verdict of these results, without the other metrics of the experiment.
    public var verdict: Verdict {
        let unready = generalUnreadiness + (counted > 0 ? unreadyWarnings : [])
        let comparisons = variations.indices.compactMap { index in
            estimate(of: variations[index])?.comparison.map { comparison(.primary, of: index, $0.evidence) }
        }
        return Verdict(
            comparisons, names: variations.map(\.name), baseline: variations.firstIndex(where: \.isBaseline) ?? 0,
            alpha: 1 - query.confidence, onlyOf: judged, invalid: invalidatingWarnings.map(\.message),
            unready: unready.map(\.message))
    }

    /// The subject of the verdict: the statistic of the goal, or the key of the metric.
    public var judged: String { measured?.definition.key.string ?? query.metric.rawValue }

    // MARK: Groups of warnings

    /// All warnings, the most important first.
    public var warnings: [Warning] {
        guard counted > 0 else {
            return [noExposuresWarning, notRunningWarning].compactMap { $0 }
        }
        return [
            sampleRatioWarning, trafficWarning, changeWarning, controlCheckWarning, multipleVariationsWarning,
            notRunningWarning, goalWarning, fillingWarning, rangeWarning, filterWarning, dominanceWarning,
        ]
        .compactMap { $0 }
    }

    /// The warnings that make the users incomparable. The verdict is then ``Verdict/Decision/invalid``.
    var invalidatingWarnings: [Warning] {
        [sampleRatioWarning, controlCheckWarning, multipleVariationsWarning].compactMap { $0 }
    }

    /// The warnings that defer the verdict about this goal or metric.
    var unreadyWarnings: [Warning] { [fillingWarning, goalWarning].compactMap { $0 } }

    /// The warnings that defer the verdict about all metrics.
    var generalUnreadiness: [Warning] {
        counted > 0 ? [rangeWarning, filterWarning].compactMap { $0 } : [noExposuresWarning]
    }

    /// The warnings that are not about the goal or the metric.
    var generalWarnings: [Warning] {
        guard counted > 0 else { return warnings }
        return [
            sampleRatioWarning, trafficWarning, changeWarning, multipleVariationsWarning, notRunningWarning,
            rangeWarning, filterWarning,
        ].compactMap { $0 }
    }

    /// The warnings about the goal or the metric.
    public var specificWarnings: [Warning] {
        let general = Set(generalWarnings.map(\.code))
        return warnings.filter { !general.contains($0.code) }
    }

    // MARK: Single warnings

    private var noExposuresWarning: Warning {
        // Mentions the excluded users, because an experiment is often first tried out with an override.
        let excludedUsers = [
            chosen > 0 ? "\(chosen) with an override or a forced variation" : nil,
            multipleVariations > 0 ? "\(multipleVariations) with several variations" : nil,
        ].compactMap { $0 }
        let excluded = excludedUsers.isEmpty ? "" : "; left out: \(excludedUsers.joined(separator: ", "))"
        return Warning(
            code: .noExposures, message: "no user who counts has been exposed to this experiment yet" + excluded)
    }

    private var notRunningWarning: Warning? {
        guard notRunning > 0 else { return nil }
        return Warning(
            code: .notRunning,
            message: notRunning == 1
                ? "1 exposure happened while the experiment was not running and is not counted"
                : "\(notRunning) exposures happened while the experiment was not running and are not counted")
    }

    private var sampleRatioWarning: Warning? {
        guard sampleRatio.isMismatch, let p = sampleRatio.pValue else { return nil }
        let counts = variations.filter { $0.expectedShare ?? 0 > 0 }.map { "\($0.name) \($0.tally.counted)" }
        // With several periods, mentions those whose own split is broken.
        let broken = sampleRatio.periods.filter { period in
            guard let pValue = period.pValue else { return false }
            return pValue < SampleRatioCheck.threshold
        }
        let times = sampleRatio.periods.count > 1 ? broken.compactMap(\.since).map(\.rfc3339) : []
        let since = times.isEmpty ? "" : ", mostly under the allocation since \(times.joined(separator: ", "))"
        return Warning(
            code: .sampleRatioMismatch,
            message:
                "the users are not split as the traffic allocation says (\(counts.joined(separator: ", ")); "
                + "p \(Self.short(p))\(since)): something loses or adds users of one variation; do not trust these "
                + "results until you have found the cause")
    }

    private var fillingWarning: Warning? {
        guard let measured, measured.isFilling else { return nil }
        return Warning(
            code: .filling,
            message:
                "users who did something before the metric '\(measured.definition.key)' was defined are still being "
                + "counted; decide when all are")
    }

    private var rangeWarning: Warning? {
        guard query.enrolledOn != nil else { return nil }
        return Warning(
            code: .someDays,
            message:
                "only users who were enrolled on some days count: if the days were chosen by their results, intervals "
                + "and p-values promise too much; decide by the results of all days")
    }

    private var filterWarning: Warning? {
        guard let counted = query.filter.description else { return nil }
        return Warning(
            code: .someUsers,
            message:
                "only \(counted) counts: who looks at many groups will find one that differs; decide by the results of "
                + "all users, and make another experiment of what you find")
    }

    /// Warns that the ratio of the variations was changed. A bandit's users are weighted for this, so with a bandit
    /// only a ratio of sums, which is not weighted, has the warning.
    private var changeWarning: Warning? {
        let times = sampleRatio.changes.map(\.rfc3339)
        guard !times.isEmpty else { return nil }
        if adaptive != nil {
            guard measured?.definition.statistic == .ratio else { return nil }
            return Warning(
                code: .weightsChanged,
                message:
                    "the experiment's bandit has changed the ratio of the variations, and a ratio of sums is not "
                    + "weighted by the probabilities: if users of different times differ, the comparison is biased")
        }
        return Warning(
            code: .weightsChanged,
            message:
                "the ratio of the variations was changed (\(times.joined(separator: ", "))): users are compared only "
                + "with those who came under the same ratio, and the means of all users may differ otherwise than the "
                + "lift says"
        )
    }

    private var trafficWarning: Warning? {
        let without = variations.filter { $0.weight == 0 && $0.tally.counted > 0 }.map(\.name)
        guard !without.isEmpty else { return nil }
        return Warning(
            code: .trafficChanged,
            message:
                "\(without.joined(separator: ", ")) has users but no traffic: its users keep it and are still "
                + "measured, but no new user gets it")
    }

    private var controlCheckWarning: Warning? {
        guard let controlCheck, controlCheck.isSuspicious else { return nil }
        return Warning(
            code: .controlCheckDiffers,
            message:
                "control and control-check differ (always-valid p < \(ControlCheck.threshold)), although their users "
                + "get the same: check the split and the tracking before you believe any difference")
    }

    /// Warns if more than 1% of the users were exposed to several variations.
    private var multipleVariationsWarning: Warning? {
        let all = counted + multipleVariations
        guard multipleVariations * 100 > all else { return nil }
        return Warning(
            code: .multipleVariations,
            message:
                "\(multipleVariations) of \(all) users were exposed to more than one variation and are left out: "
                + "assignments do not stick"
        )
    }

    /// Warns if no user has reached the goal, or has done what the metric counts.
    private var goalWarning: Warning? {
        guard variations.allSatisfy({ $0.tally.goal.converted == 0 }) else { return nil }
        if let measured {
            return Warning(
                code: .noConversions,
                message: "no exposed user has done what the metric '\(measured.definition.key)' counts"
                    + (measured.isFilling
                        ? " yet; users who did something before it was defined are being counted" : ""))
        }
        return noConversionsOfGoalWarning
    }

    /// Warns that no user has reached the goal, with a hint to the reason: a misspelt goal, or one that was reached
    /// before the exposure.
    private var noConversionsOfGoalWarning: Warning {
        let goal = query.goal ?? ""
        guard !otherGoals.contains(goal) else {
            return Warning(
                code: .noConversions,
                message:
                    "no user has reached the goal '\(goal)' after being exposed; it was reached only before, which "
                    + "does not count"
            )
        }
        let list = otherGoals.map(\.string).joined(separator: ", ")
        let hint = Spelling.hint(for: goal, among: otherGoals)
        return Warning(
            code: .noConversions,
            message: "no exposed user has reached the goal '\(goal)'"
                + (list.isEmpty ? "" : "; goals that were reached: \(list)") + hint)
    }

    /// The share of the sum of all values that one user in a thousand must have for a warning.
    private static let dominantShare = 0.2

    /// Warns if a few users have so much of the sum that a cap would shorten the experiment.
    private var dominanceWarning: Warning? {
        guard let userTotals, let proposed = ProposedCap(userTotals),
            proposed.greatest.shareOfSum >= Self.dominantShare
        else { return nil }
        let greatest = proposed.greatest
        let who = greatest.users == 1 ? "1 user" : "\(greatest.users) users"
        let days = days(with: proposed).map { ", some \(Int($0.rounded(.up))) days" } ?? ""
        return Warning(
            code: .fewUsersDominate,
            message:
                "\(who) (\(Self.percent(greatest.shareOfUsers)) of them) have \(Self.percent(greatest.shareOfSum)) of "
                + "the sum of '\(subject)': with a cap of \(proposed.cap.shortest) an effect would take "
                + "\(Self.percent(proposed.users)) of the users\(days); set the cap of a metric before the next "
                + "experiment starts, because one that is chosen by its results decides them")
    }

    /// Returns the number of days from now until always-valid intervals detect the effect of interest with a cap, in
    /// the variation that takes longest.
    ///
    /// - Returns: `nil` if there is no effect of interest, or if it takes more than ten years.
    private func days(with proposed: ProposedCap) -> Double? {
        let effect = query.effect ?? measured?.definition.minimumEffect
        guard let effect, let baseline, let estimate = measured == nil ? baseline.value : baseline.metric else {
            return nil
        }
        let limited = proposed.limiting(mean: estimate.mean, standardDeviation: estimate.standardDeviation)
        let power = Power(
            of: .mean(limited.mean, standardDeviation: limited.standardDeviation), alpha: 1 - query.confidence,
            looks: .any(tuning: query.tuning))
        var longest = 0.0
        for variation in variations where !variation.isBaseline {
            let days = power.time(toFind: effect, until: ResultsPower.dayLimit) { days in
                (
                    Double(variation.tally.counted) + days * enrollment[variation.id],
                    Double(baseline.tally.counted) + days * enrollment[baseline.id]
                )
            }
            guard let days else { return nil }
            longest = max(longest, days)
        }
        return longest
    }

    /// Formats a share for texts, such as `4.2%` or `37%`: with one decimal below 10%.
    private static func percent(_ share: Double) -> String {
        let percent = share * 100
        return percent < 10 ? "\((percent * 10).rounded() / 10)%" : "\(Int(percent.rounded()))%"
    }

    /// Formats a p-value for texts: `= 0.0123` or `< 0.0001`.
    public static func short(_ p: Double) -> String {
        p < 0.0001 ? "< 0.0001" : "= \((p * 10_000).rounded() / 10_000)"
    }
}
