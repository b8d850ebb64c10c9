public import Bucketing

/// The rules of allocation periods: under which allocation a user got a variation.
///
/// A period begins with the datafile that changes the allocation, whether or not anybody is exposed under it. An exposure
/// belongs to the period in which the user was assigned, if the profile has the assignment: users keep their variation,
/// so that somebody enrolled under an earlier allocation may be exposed under a later one. Otherwise it belongs to the
/// period of the datafile that it was decided with, or of the time at which it happened if that was before this datafile.
/// What was imported has a period of its own, with the shares that held elsewhere.
public enum AllocationRules {
    /// Returns the allocation of each experiment in a datafile, without the targeted rollouts.
    ///
    /// - Parameter former: a datafile whose allocations are stored; then only those that differ from them are returned.
    public static func allocations(
        in datafile: Datafile, since former: Datafile? = nil
    ) -> [Identifier: TrafficAllocation] {
        measured(in: datafile, since: former, \.plannedAllocation)
    }

    /// Returns something of each experiment in a datafile, without the targeted rollouts, and of the comparisons of its
    /// holdouts.
    ///
    /// - Parameter former: a datafile of which it is known; then only what differs from that is returned.
    static func measured<Value: Equatable>(
        in datafile: Datafile, since former: Datafile?, _ part: (Experiment) -> Value
    ) -> [Identifier: Value] {
        let candidates = former.map { datafile.experiments(unlike: $0) } ?? datafile.experiments
        let ids = candidates.map(\.id) + datafile.holdouts.compactMap(\.comparison).map(\.id)
        var values: [Identifier: Value] = [:]
        for id in ids {
            guard let experiment = datafile.measured(id) else { continue }
            let value = part(experiment)
            if former?.measured(id).map(part) != value { values[id] = value }
        }
        return values
    }

    /// Returns the periods that a datafile begins, in the order of the experiments' ids.
    ///
    /// - Parameters:
    ///   - allocations: those in the datafile.
    ///   - latest: the last period of each experiment in the datafile's project.
    public static func periods(
        begunBy datafile: StoredDatafile, _ allocations: [Identifier: TrafficAllocation],
        after latest: [Identifier: AllocationPeriod]
    ) -> [(experimentID: Identifier, period: AllocationPeriod)] {
        allocations.filter { latest[$0.key]?.allocation != $0.value }.sorted { $0.key < $1.key }.map {
            let period = AllocationPeriod(
                number: datafile.version, sdkKey: datafile.sdkKey, since: datafile.storedAt, allocation: $0.value)
            return (experimentID: $0.key, period: period)
        }
    }

    /// What the period of an exposure depends on.
    static func parts(_ exposure: Exposure) -> [UserRecords.Part] {
        exposure.active == nil ? [] : [.periods(experimentID: exposure.experimentID), .profile]
    }

    /// Returns the number of the exposure's period, and stores the period if it is new.
    static func period(of exposure: Exposure, in records: inout UserRecords) -> Int64 {
        guard let active = exposure.active else { return AllocationPeriod.unknown }
        let decided = period(of: active, experimentID: exposure.experimentID, in: &records)
        if exposure.isImported { return decided.number }
        let known = records.periods.filter { $0.sdkKey == active.sdkKey }
        func current(at time: Timestamp) -> AllocationPeriod? {
            known.current(at: time) ?? known.earliest
        }
        let period =
            if let assignedAt = assignmentTime(exposure, records) {
                current(at: assignedAt)
            } else if exposure.happenedAt < active.since {
                current(at: exposure.happenedAt)
            } else {
                decided
            }
        return period?.number ?? decided.number
    }

    /// Returns the period of a datafile. A server of an earlier release may have stored the datafile without it; then the
    /// period begins here, unless the project had the same allocation before.
    private static func period(
        of active: AllocationPeriod, experimentID: Identifier, in records: inout UserRecords
    ) -> AllocationPeriod {
        let known = records.periods.filter { $0.sdkKey == active.sdkKey }
        if let same = known.first(where: { $0.number == active.number }) { return same }
        let former = known.filter { AllocationPeriod.isBefore($0, active) }.max(by: AllocationPeriod.isBefore)
        if let former, former.allocation == active.allocation { return former }
        records.add(active, of: experimentID)
        return active
    }

    /// When the user got the variation; `nil` if the profile does not have it.
    ///
    /// What this server has bucketed has the time of the decision. Who saves a decision may have shown it before.
    private static func assignmentTime(_ exposure: Exposure, _ records: UserRecords) -> Timestamp? {
        guard case .present(let profile) = records.profile, let newest = profile[exposure.experimentID],
            let assignment = newest.variationID == exposure.variationID ? newest : newest.withoutOverride,
            assignment.variationID == exposure.variationID
        else { return nil }
        return assignment.source == .bucketed
            ? assignment.assignedAt : min(assignment.assignedAt, exposure.happenedAt)
    }
}

extension Datafile {
    /// The experiment of an id, unless it is a targeted rollout, or the comparison of the holdout of that id.
    fileprivate func measured(_ id: Identifier) -> Experiment? {
        holdouts.last { $0.id == id && $0.comparison != nil }?.comparison
            ?? (isDeliveryRule(id) ? nil : experiment(id: id))
    }
}
