public import Bucketing
import Chronology

/// A step of the work of ``SeriesFiller``, which stores users' totals of new series and deletes those of dropped
/// series. A step covers the users of one page of exposures.
public struct SeriesWork: Sendable, Equatable {
    /// The numbers of the series.
    public var series: [Int64]
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
    public var isNoted: Bool
}

extension SharedChange<SeriesProgress> {
    /// Records a completed step. The result has the next step: for the series that have the most left to do.
    ///
    /// - Parameters:
    ///   - done: the completed step; `nil` to begin.
    ///   - last: the number of the last exposure in the page of the step; `nil` if the page was empty, so that all
    ///     users are done.
    public static func continueSeries(_ done: SeriesWork?, upTo last: Int64?) -> Self {
        Self(.series) { records, _ in
            var isNoted = true
            if let done { isNoted = records.note(done, upTo: last) }
            let open = records.series.filter { $0.state != .filled }
            guard let least = open.map(\.doneTo).min() else { return SeriesProgress(next: nil, isNoted: isNoted) }
            let chosen = open.filter { $0.doneTo == least }
            let next = SeriesWork(
                series: chosen.map(\.number), experimentIDs: Set(chosen.map(\.experimentID)), after: least)
            return SeriesProgress(next: next, isNoted: isNoted)
        }
    }
}

/// The tallies of a series, under its own names and in the groups of breakdowns.
package struct SeriesSums: Sendable {
    package var experimentID: Identifier
    package var names: [Identifier]
    /// The ranges of names for groups.
    package var ranges: [GroupNames.Range]
}

extension SharedRecords {
    /// The tallies to delete when a series is dropped.
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

    /// Records a completed step: moves its series forward, and at the end marks new series as filled and deletes
    /// dropped ones.
    ///
    /// - Returns: `false` if another process has recorded progress meanwhile.
    fileprivate mutating func note(_ done: SeriesWork, upTo last: Int64?) -> Bool {
        var isNoted = true
        var kept: [TrackedSeries] = []
        for var series in series {
            guard done.series.contains(series.number) else {
                kept.append(series)
                continue
            }
            guard series.doneTo == done.after, series.state != .filled else {
                isNoted = false
                kept.append(series)
                continue
            }
            series.doneTo = last ?? series.doneTo
            if series.state == .filling { series.since = max(series.since, eventsSince) }
            if last == nil, series.state == .dropped {
                write(.deleteSums(sums(of: series), andSeries: series.number))
                continue
            }
            if last == nil { series.state = .filled }
            write(.putSeries(series))
            kept.append(series)
        }
        series = kept
        if isNoted, last == nil { write(.renumberSeries(newestSeries + 1)) }
        return isNoted
    }

    /// Makes the tracked series of a project equal to those that the metrics of its experiments need: adds those that
    /// are missing, and drops the others.
    ///
    /// - Parameter wanted: the needed series, by experiment.
    mutating func track(_ wanted: [Identifier: [SeriesDefinition]], sdkKey: String, at now: Instant) {
        var missing = wanted.mapValues { Set($0) }
        var version = newestSeries
        for var series in series where series.sdkKey == sdkKey && series.state != .dropped {
            if missing[series.experimentID]?.remove(series.definition) != nil { continue }
            series.state = .dropped
            series.doneTo = 0
            version = newestSeries + 1
            write(.putSeries(series))
            write(.deleteSums(sums(of: series), andSeries: nil))
        }
        for experimentID in missing.keys.sorted() {
            for definition in wanted[experimentID] ?? [] where missing[experimentID]?.remove(definition) != nil {
                version += 1
                var series = TrackedSeries(
                    number: version, sdkKey: sdkKey, experimentID: experimentID, definition: definition,
                    since: eventsSince)
                // Users who were exposed before now get no group, because their attributes at the exposure are unknown.
                // Series of periods are treated in the same way.
                if series.hasGroups {
                    series.state = .filled
                    series.since = now
                }
                write(.putSeries(series))
            }
        }
        if version != newestSeries { write(.renumberSeries(version)) }
    }
}
