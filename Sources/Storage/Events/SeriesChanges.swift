public import Bucketing
import Chronology

/// A step of the work of ``SeriesFiller``, which stores users' totals of new series and deletes users' totals of
/// dropped series. A step covers the users of one page of exposures.
public struct SeriesWork: Sendable, Equatable {
    /// The numbers of the series.
    public var series: [Int64]
    /// The experiments of the series. Exposures to other experiments are skipped.
    public var experimentIDs: Set<Identifier>
    /// The page begins after the exposure with this number.
    public var after: Int64

    public init(series: [Int64], experimentIDs: Set<Identifier>, after: Int64) {
        self.series = series
        self.experimentIDs = experimentIDs
        self.after = after
    }
}

/// The result of recording a step.
public struct SeriesProgress: Sendable, Equatable {
    /// The next step; `nil` if nothing is left to do.
    public var next: SeriesWork?
    /// Whether the step was recorded; `false` if another process has recorded the same step before.
    public var isRecorded: Bool
}

extension SharedChange<SeriesProgress> {
    /// Records a completed step. The result has the next step, for the series with the most users left.
    ///
    /// - Parameters:
    ///   - done: the completed step; `nil` to begin.
    ///   - last: the number of the last exposure in the page of the step; `nil` if the page was empty, so that all
    ///     users are done.
    public static func continueSeries(_ done: SeriesWork?, upTo last: Int64?) -> Self {
        Self(.series) { records, _ in
            let isRecorded = done.map { records.recordProgress($0, upTo: last) } ?? true
            return SeriesProgress(next: records.nextSeriesWork, isRecorded: isRecorded)
        }
    }
}

/// The tallies of a series, under its own names and in the groups of breakdowns.
package struct SeriesSums: Sendable {
    package var experimentID: Identifier
    /// The names of the series; empty for a breakdown.
    package var names: [Identifier]
    /// The ranges of the names in groups.
    package var ranges: [GroupNames.Range]
}

extension SharedRecords {
    /// The next step of the work; `nil` if no series is being filled or deleted. Series that have progressed equally
    /// far share a step.
    fileprivate var nextSeriesWork: SeriesWork? {
        let unfinished = series.filter { $0.state != .filled }
        guard let least = unfinished.map(\.doneTo).min() else { return nil }
        let chosen = unfinished.filter { $0.doneTo == least }
        return SeriesWork(
            series: chosen.map(\.number), experimentIDs: Set(chosen.map(\.experimentID)), after: least)
    }

    /// Returns the tallies to delete when a series is dropped.
    fileprivate func sums(of series: TrackedSeries) -> SeriesSums {
        guard !series.hasGroups else {
            return SeriesSums(
                experimentID: series.experimentID, names: [], ranges: [GroupNames(series.number).all])
        }
        let breakdowns = self.series.filter { $0.experimentID == series.experimentID && $0.hasGroups }
        return SeriesSums(
            experimentID: series.experimentID, names: series.names,
            ranges: breakdowns.flatMap { breakdown in
                series.names.map { GroupNames(breakdown.number).values(of: $0) }
            })
    }

    /// Records a completed step: moves its series forward. After the last step, new series are filled and dropped
    /// series are deleted.
    ///
    /// - Returns: `false` if another process has recorded progress of one of the series meanwhile.
    fileprivate mutating func recordProgress(_ done: SeriesWork, upTo last: Int64?) -> Bool {
        var isRecorded = true
        var kept: [TrackedSeries] = []
        for series in series {
            guard done.series.contains(series.number) else {
                kept.append(series)
                continue
            }
            guard series.doneTo == done.after, series.state != .filled else {
                isRecorded = false
                kept.append(series)
                continue
            }
            if let advanced = advance(series, upTo: last) { kept.append(advanced) }
        }
        series = kept
        // Once a series is filled, a user without totals has no events that count. Before, the filler might not have
        // reached the user. Changes of users that were computed with the former state have the former version, and are
        // refused.
        if isRecorded, last == nil { write(.renumberSeries(newestSeries + 1)) }
        return isRecorded
    }

    /// Stores the progress of one series.
    ///
    /// - Returns: the series; `nil` if it was deleted.
    private mutating func advance(_ former: TrackedSeries, upTo last: Int64?) -> TrackedSeries? {
        var series = former
        series.doneTo = last ?? former.doneTo
        // Events that were deleted before this step are missing in the totals.
        if series.state == .filling { series.since = max(series.since, eventsSince) }
        if last == nil, series.state == .dropped {
            write(.deleteSums(sums(of: series), andSeries: series.number))
            return nil
        }
        if last == nil { series.state = .filled }
        write(.putSeries(series))
        return series
    }

    /// Makes the tracked series of a project equal to the series that the metrics of its experiments need: drops the
    /// series that are no longer needed, and adds the missing ones.
    ///
    /// - Parameter wanted: the needed series, by experiment.
    mutating func track(_ wanted: [Identifier: [SeriesDefinition]], sdkKey: String, at now: Instant) {
        var missing = wanted.mapValues { Set($0) }
        var version = newestSeries
        for series in series where series.sdkKey == sdkKey && series.state != .dropped {
            if missing[series.experimentID]?.remove(series.definition) != nil { continue }
            // With a new version, changes of users that were computed with the dropped series are refused.
            version = newestSeries + 1
            drop(series)
        }
        for experimentID in missing.keys.sorted() {
            for definition in wanted[experimentID] ?? [] where missing[experimentID]?.remove(definition) != nil {
                version += 1
                let series = TrackedSeries(
                    number: version, sdkKey: sdkKey, experimentID: experimentID, definition: definition,
                    since: eventsSince)
                insert(series, at: now)
            }
        }
        // The number of the newest series is also the version of all series. It changes even if no series is new.
        if version != newestSeries { write(.renumberSeries(version)) }
    }

    /// Deletes the tallies of a series that is no longer needed. ``SeriesFiller`` then deletes the users' totals.
    private mutating func drop(_ series: TrackedSeries) {
        var dropped = series
        dropped.state = .dropped
        dropped.doneTo = 0
        write(.putSeries(dropped))
        write(.deleteSums(sums(of: dropped), andSeries: nil))
    }

    /// Stores a new series.
    private mutating func insert(_ new: TrackedSeries, at now: Instant) {
        var series = new
        // Groups are not filled in: users who were exposed before now have no group, because their attributes at the
        // exposure are unknown. Series of periods are treated in the same way.
        if series.hasGroups {
            series.state = .filled
            series.since = now
        }
        write(.putSeries(series))
    }
}
