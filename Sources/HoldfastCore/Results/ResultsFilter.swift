public import Bucketing
public import Chronology
public import Definitions
public import Storage

/// A restriction of the users whom results count, and of the time in which their events count.
public struct ResultsFilter: Sendable {
    /// Only users whose attribute had this value at the first exposure. The attribute must have a breakdown.
    var attribute: (name: Identifier, value: Identifier)?
    /// Only users who are currently in this segment.
    public var segment: Identifier?
    /// Only events in this number of days after each user's first exposure.
    public var days: Double?
    /// Whether users are excluded whose time window has not ended yet: ``days``, or the window of the metric.
    public var countsWholeTimes = false

    static let parameters = ["attribute", "value", "segment", "window", "days"]
    private static let dayRange = 0.01...3_650.0
    /// The maximum number of users who are counted one by one.
    static let limit = 1_000_000

    public init() {}

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

    public var attributeName: Identifier? { attribute?.name }
    public var attributeValue: Identifier? { attribute?.value }

    public var isEmpty: Bool { attribute == nil && !countsIndividually && !countsWholeTimes }

    /// Whether users must be counted one by one, from their current records.
    public var countsIndividually: Bool { segment != nil || days != nil }

    /// ``days`` as a length of time.
    var time: TimeSpan? { days.map { TimeSpan(days: $0) } }

    /// The restriction in words; `nil` if there is none.
    var description: String? {
        let parts = [
            attribute.map { "users whose '\($0.name)' was '\($0.value)' at their exposure" },
            segment.map { "users who are in the segment '\($0)' now" },
            days.map { "what users did in the first \($0.shortest) days since their exposure" },
        ]
        let found = parts.compactMap { $0 }
        return found.isEmpty ? nil : found.joined(separator: ", and of them only ")
    }

    /// Returns the last day of enrollment whose users count; `nil` if all do. With ``countsWholeTimes``, and always for
    /// retention, users do not count before their time window has ended, because they could still come back.
    func lastDay(_ definition: MetricDefinition?, at now: Instant) -> Int64? {
        let isRetention = definition?.kind == .retention
        guard isRetention || countsWholeTimes else { return nil }
        return [definition?.series?.to, time].compactMap { $0 }.min().map { (now - $0).day - 1 }
    }

    /// - Throws: 422 if ``countsWholeTimes``, but neither ``days`` nor the metric defines a time window.
    public func check(_ definition: MetricDefinition?) throws(CoreError) {
        guard countsWholeTimes, days == nil, definition?.series?.to == nil else { return }
        let subject = definition.map { "the metric '\($0.key)' has none" } ?? "a goal has none"
        throw CoreError(.unprocessable, "`window` needs a window of the metric, or `days`; \(subject)")
    }

    // MARK: Reading

    /// Returns the tallies of the users and events that count.
    ///
    /// - Parameters:
    ///   - names: the name of the goal or the metric; for a funnel one for each step.
    ///   - definition: the computation over users' events.
    ///   - whole: the tally of all users.
    ///   - frozenAt: when the tallies were frozen; `nil` for current ones.
    /// - Throws: 422 if the filter names something unknown, if frozen users would have to be counted one by one, or if
    ///   there are too many users; 503 if too many counts are in progress.
    public func tallies(
        _ names: [Identifier], _ definition: SeriesDefinition, of experiment: Experiment, _ whole: ExperimentTally,
        enrolledOn days: ClosedRange<Int64>?, frozenAt: Instant?, _ schema: AttributeSchema,
        _ catalog: ProjectCatalog,
        _ store: any StoreSession
    ) async throws -> [ExperimentTally] {
        var group: (series: TrackedSeries, index: Int)?
        if let attribute {
            let series = try await BreakdownResults.series(
                attribute.name, of: experiment, parameter: "attribute", store)
            guard let position = series.groupValues.firstIndex(of: attribute.value) else {
                let known = series.groupValues.map(\.string).joined(separator: ", ")
                throw CoreError(
                    .unprocessable,
                    "`value` must be a value of '\(attribute.name)' that has a group of its own (\(known.isEmpty ? "none" : known)); "
                        + "got '\(attribute.value)'" + Spelling.hint(for: attribute.value, among: series.groupValues))
            }
            group = (series, position + 1)
        }
        guard countsIndividually else {
            guard let group else { return [] }
            var tallies: [ExperimentTally] = []
            for name in names {
                let tally = try await store.read(
                    .breakdown(
                        experimentID: experiment.id, series: group.series.number, goal: name, frozenAt: frozenAt))
                tallies.append(tally.tally(of: group.index))
            }
            return tallies
        }
        guard frozenAt == nil else {
            throw CoreError(
                .unprocessable,
                "`\(segment == nil ? "days" : "segment")` counts users as they are now, and these results were frozen; add "
                    + "`live=true`")
        }
        let users = (days.map(whole.enrolled) ?? whole).users.reduce(0) { $0 + $1.counts.counted }
        guard users <= Self.limit else {
            throw CoreError(
                .unprocessable,
                "at most \(Self.limit) users can be counted by `segment` or `days`; got \(users): narrow them by "
                    + "`enrolled_from` and `enrolled_to`")
        }
        var matcher: SegmentMatcher?
        if let segment {
            guard let known = schema.segments[segment] else {
                throw CoreError(.unprocessable, "`segment` must be defined: \(schema.unknownSegment(segment))")
            }
            matcher = SegmentMatcher(known, schema: schema)
        }
        var shortened: ShortenedSeries?
        if let time {
            shortened = ShortenedSeries(definition, first: time)
            guard shortened != nil else {
                throw CoreError(
                    .unprocessable,
                    "`days` must be greater than the metric's `from`; got \(self.days.map(\.shortest) ?? "")")
            }
        }
        var scan = ParticipantScan(
            experiment.id, names: names + (group.map { [$0.series.names[0]] } ?? []), withAttributes: matcher != nil)
        scan.enrolledOn = days
        let count = ParticipantCount(
            scan: scan, names: names, periods: whole.periods, matcher: matcher, group: group?.index,
            shortened: shortened)
        return try await catalog.whileCounting { session in try await count.run(session) }
    }
}

/// A count of users of an experiment, one by one.
private struct ParticipantCount: Sendable {
    let scan: ParticipantScan
    let names: [Identifier]
    let periods: [AllocationPeriod]
    let matcher: SegmentMatcher?
    /// The number of the group whose users count, from 1; a participant's last total has the participant's group. `nil` for
    /// all users.
    let group: Int?
    let shortened: ShortenedSeries?

    private struct Key: Hashable {
        var variationID: Identifier
        var day: Int64
    }

    /// - Returns: a tally for each name.
    func run(_ session: any StoreSession) async throws(StorageError) -> [ExperimentTally] {
        var scan = scan
        var users: [Cohort: UserCounts] = [:]
        var goals = [[Key: GoalTally]](repeating: [:], count: names.count)
        repeat {
            let page = try await session.read(.participants(scan))
            var events = ParticipantEvents()
            if let shortened, let last = page.participants.last?.userID {
                events = try await session.read(.events(shortened, of: scan, through: last))
            }
            for participant in page.participants where counts(participant) {
                users[participant.cohort, default: UserCounts()] += participant.users
                guard participant.users.counted > 0 else { continue }
                let totals = Array(participant.totals.prefix(names.count))
                let tallies =
                    shortened?.tallies(of: participant, events, totals: totals)
                    ?? zip(names, totals).map { name, total in total.map { $0.tally(of: name) } }
                let key = Key(variationID: participant.cohort.variationID, day: participant.cohort.day)
                for (index, tally) in tallies.enumerated() {
                    if let tally { goals[index][key] = (goals[index][key] ?? GoalTally()) + tally }
                }
            }
            scan.after = page.end
            await Task.yield()
        } while scan.after != nil
        let counted = users.map { (cohort: $0, counts: $1) }
        return goals.map { sums in
            let rows = sums.map { (variationID: $0.variationID, day: $0.day, tally: $1) }
            return ExperimentTally(periods: periods, users: counted, goals: rows)
        }
    }

    private func counts(_ participant: Participant) -> Bool {
        if let matcher {
            guard let attributes = participant.attributes, attributes.withUnsafeBytes({ matcher.matches($0) }) else {
                return false
            }
        }
        guard let group else { return true }
        return participant.totals.last.flatMap { $0 }.map { Int(exactly: $0.afterValue) == group } ?? false
    }
}
