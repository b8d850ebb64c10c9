public import Bucketing
public import Chronology
public import Definitions
public import Storage

/// A restriction of the users whom results count, and of the time in which their events count.
///
/// The store has totals for each value of an attribute with a breakdown, so a restriction to a value reads these
/// totals. The store has no totals for a segment or for a number of days. For such a restriction, the users are counted
/// one by one (``ParticipantCount``).
public struct ResultsFilter: Sendable {
    /// Only users whose attribute had this value at their first exposure. The attribute must have a breakdown.
    var attribute: (name: Identifier, value: Identifier)?
    /// Only users who are currently in this segment.
    public var segment: Identifier?
    /// Only events in this number of days after each user's first exposure.
    public var days: Double?
    /// Whether users count only after their time window has ended. The window is ``days``, or that of the metric.
    public var countsWholeTimes = false

    static let parameters = ["attribute", "value", "segment", "window", "days"]
    /// The allowed values of ``days``.
    private static let dayRange = 0.01...3_650.0
    /// The maximum number of users who are counted one by one. It bounds the time of a request.
    static let limit = 1_000_000

    public init() {}

    /// Parses the query parameters of a request.
    ///
    /// - Throws: 400 with the parameter that is wrong.
    init(_ query: [String: String]) throws(CoreError) {
        switch (query["attribute"], query["value"]) {
        case (let name?, let value?): attribute = (Identifier(name), Identifier(value))
        case (.some, nil): throw CoreError(.invalid, "`value` is required with `attribute`: the value that users had")
        case (nil, .some): throw CoreError(.invalid, "`attribute` is required with `value`")
        case (nil, nil): break
        }
        segment = query["segment"].map { Identifier($0) }
        if let text = query["days"] {
            guard let number = Double(text), Self.dayRange.contains(number) else {
                throw CoreError(.invalid, "`days` must be a number from 0.01 to 3650; got '\(text)'")
            }
            days = number
        }
        if let text = query["window"] {
            guard text == "ended" else { throw CoreError(.invalid, "`window` must be 'ended'; got '\(text)'") }
            countsWholeTimes = true
        }
    }

    /// The attribute whose value is restricted.
    public var attributeName: Identifier? { attribute?.name }
    /// The value that users must have.
    public var attributeValue: Identifier? { attribute?.value }

    /// Whether there is no restriction.
    public var isEmpty: Bool { attribute == nil && !countsIndividually && !countsWholeTimes }

    /// Whether users must be counted one by one, from their current records.
    public var countsIndividually: Bool { segment != nil || days != nil }

    /// ``days`` as a length of time.
    var time: TimeSpan? { days.map { TimeSpan(days: $0) } }

    /// The restriction in words; `nil` if there is none.
    var description: String? {
        let restrictions = [
            attribute.map { "users whose '\($0.name)' was '\($0.value)' at their exposure" },
            segment.map { "users who are in the segment '\($0)' now" },
            days.map { "what users did in the first \($0.shortest) days since their exposure" },
        ]
        let given = restrictions.compactMap { $0 }
        return given.isEmpty ? nil : given.joined(separator: ", and of them only ")
    }

    /// Returns the last day of enrollment whose users count; `nil` if all users count.
    ///
    /// With ``countsWholeTimes``, and always for retention, users do not count before their time window has ended,
    /// because they could still come back.
    func lastDay(_ definition: MetricDefinition?, at now: Instant) -> Int64? {
        let isRetention = definition?.kind == .retention
        guard isRetention || countsWholeTimes else { return nil }
        // The metric and the filter may each have a window. An event counts only if it is within both windows, so the
        // shorter one decides.
        guard let window = [definition?.series?.to, time].compactMap({ $0 }).min() else { return nil }
        // A window that ends now began during some day. The window of a user who was enrolled later on that day has not
        // ended yet, so the day before is the last one whose users all count.
        return (now - window).day - 1
    }

    /// Checks that there is a time window if ``countsWholeTimes`` requires one.
    ///
    /// - Throws: 422 if neither ``days`` nor the metric defines a time window.
    public func check(_ definition: MetricDefinition?) throws(CoreError) {
        guard countsWholeTimes, days == nil, definition?.series?.to == nil else { return }
        let subject = definition.map { "the metric '\($0.key)' has none" } ?? "a goal has none"
        throw CoreError(.unprocessable, "`window` needs a window of the metric, or `days`; \(subject)")
    }

    // MARK: Reading

    /// Returns the tallies of the users and events that count. The result is empty if the filter restricts neither an
    /// attribute, nor a segment, nor the days.
    ///
    /// - Parameters:
    ///   - names: the name of the goal or the metric; for a funnel the name of each step.
    ///   - definition: the computation over users' events.
    ///   - whole: the tally of all users.
    ///   - days: the days of enrollment whose users count; `nil` for all days.
    ///   - frozenAt: the time at which the tallies were frozen; `nil` for current tallies.
    /// - Throws: 422 if the attribute, the value or the segment is unknown, or if the users cannot be counted one by
    ///   one; 503 if too many counts are in progress.
    public func tallies(
        _ names: [Identifier], _ definition: SeriesDefinition, of experiment: Experiment, _ whole: ExperimentTally,
        enrolledOn days: ClosedRange<Int64>?, frozenAt: Instant?, _ schema: AttributeSchema,
        _ catalog: ProjectCatalog, _ store: any StoreSession
    ) async throws -> [ExperimentTally] {
        let group = try await group(of: experiment, store)
        guard countsIndividually else {
            guard let group else { return [] }
            return try await Self.tallies(of: group, names, experiment, frozenAt: frozenAt, store)
        }
        try checkCount(whole, enrolledOn: days, frozenAt: frozenAt)
        let matcher = try matcher(schema)
        let shortened = try shortened(definition)
        // A breakdown stores the group of a user as a total, under the name of its series.
        let groupName = group.map { [$0.series.names[0]] } ?? []
        var scan = ParticipantScan(experiment.id, names: names + groupName, withAttributes: matcher != nil)
        scan.enrolledOn = days
        let count = ParticipantCount(
            scan: scan, names: names, periods: whole.periods, matcher: matcher, group: group?.index,
            shortened: shortened)
        return try await catalog.whileCounting { session in try await count.run(session) }
    }

    /// A group of a breakdown: the users who had one value of the attribute.
    private struct Group {
        let series: TrackedSeries
        /// The index of the group, from 1; see ``BreakdownGroup``.
        let index: Int
    }

    /// Returns the group of ``attribute``; `nil` if no attribute is restricted.
    ///
    /// - Throws: 422 if the experiment has no breakdown by the attribute, or if the value has no group of its own.
    private func group(of experiment: Experiment, _ store: any StoreSession) async throws -> Group? {
        guard let attribute else { return nil }
        let series = try await BreakdownResults.series(attribute.name, of: experiment, parameter: "attribute", store)
        guard let position = series.groupValues.firstIndex(of: attribute.value) else {
            let known = series.groupValues.map(\.string).joined(separator: ", ")
            throw CoreError(
                .unprocessable,
                "`value` must be a value of '\(attribute.name)' that has a group of its own "
                    + "(\(known.isEmpty ? "none" : known)); "
                    + "got '\(attribute.value)'" + Spelling.hint(for: attribute.value, among: series.groupValues))
        }
        return Group(series: series, index: position + 1)
    }

    /// Reads the stored tallies of a group.
    private static func tallies(
        of group: Group, _ names: [Identifier], _ experiment: Experiment, frozenAt: Instant?,
        _ store: any StoreSession
    ) async throws -> [ExperimentTally] {
        var tallies: [ExperimentTally] = []
        for name in names {
            let tally = try await store.read(
                .breakdown(
                    experimentID: experiment.id, series: group.series.number, goal: name, frozenAt: frozenAt))
            tallies.append(tally.tally(of: group.index))
        }
        return tallies
    }

    /// Checks that the users can be counted one by one. Frozen results cannot, because the users' records are current.
    ///
    /// - Throws: 422 if the results are frozen, or if there are too many users.
    private func checkCount(
        _ whole: ExperimentTally, enrolledOn days: ClosedRange<Int64>?, frozenAt: Instant?
    ) throws(CoreError) {
        guard frozenAt == nil else {
            throw CoreError(
                .unprocessable,
                "`\(segment == nil ? "days" : "segment")` counts users as they are now, and these results were frozen; "
                    + "add `live=true`")
        }
        let users = (days.map(whole.enrolled) ?? whole).users.reduce(0) { $0 + $1.counts.counted }
        guard users <= Self.limit else {
            throw CoreError(
                .unprocessable,
                "at most \(Self.limit) users can be counted by `segment` or `days`; got \(users): narrow them by "
                    + "`enrolled_from` and `enrolled_to`")
        }
    }

    /// Returns the test of whether a user is in ``segment``; `nil` if no segment is restricted.
    ///
    /// - Throws: 422 if the segment is not defined.
    private func matcher(_ schema: AttributeSchema) throws(CoreError) -> SegmentMatcher? {
        guard let segment else { return nil }
        guard let definition = schema.segments[segment] else {
            throw CoreError(.unprocessable, "`segment` must be defined: \(schema.unknownSegment(segment))")
        }
        return SegmentMatcher(definition, schema: schema)
    }

    /// Returns the computation over the events in the first ``days``; `nil` if the days are not restricted.
    ///
    /// - Throws: 422 if no event in these days could count.
    private func shortened(_ definition: SeriesDefinition) throws(CoreError) -> ShortenedSeries? {
        guard let time else { return nil }
        guard let shortened = ShortenedSeries(definition, first: time) else {
            throw CoreError(
                .unprocessable,
                "`days` must be greater than the metric's `from`; got \(self.days.map(\.shortest) ?? "")")
        }
        return shortened
    }
}
