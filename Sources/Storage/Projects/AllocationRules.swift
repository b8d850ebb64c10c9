public import Bucketing
import Chronology

/// The rules of allocation periods, which determine the allocation under which a user got a variation.
///
/// A period begins with the datafile that changes the allocation, even if nobody is exposed in it. An exposure belongs
/// to the first of these periods that applies:
///
/// - **Imported exposures** have a period of their own, with the shares of the import.
/// - **The profile has the assignment**: the period in which the user was assigned. Users keep their variation, so a
///   user enrolled under an earlier allocation may be exposed under a later one.
/// - **The exposure happened before the datafile by which it was decided**: the period at the time of the exposure.
/// - **Otherwise** the period of the datafile by which it was decided.
public enum AllocationRules {
    /// Returns the allocation of each experiment in a datafile. Targeted rollouts are left out, because their
    /// variations are not stored.
    ///
    /// - Parameter former: a datafile whose allocations are stored. If it is given, only allocations that differ from
    ///   it are returned.
    public static func allocations(
        in datafile: Datafile, since former: Datafile? = nil
    ) -> [Identifier: TrafficAllocation] {
        measured(in: datafile, since: former, \.plannedAllocation)
    }

    /// Returns a value for each experiment in a datafile except targeted rollouts, and for each comparison of a
    /// holdout.
    ///
    /// - Parameter former: a datafile whose values are known. If it is given, only values that differ from it are
    ///   returned.
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
    ///   - allocations: the allocations in the datafile, by experiment.
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

    /// Returns the parts on which the period of an exposure depends.
    static func parts(_ exposure: Exposure) -> [UserRecords.Part] {
        exposure.active == nil ? [] : [.periods(experimentID: exposure.experimentID), .profile]
    }

    /// Returns the number of the period to which an exposure belongs, and stores the period if it is not yet stored.
    static func period(of exposure: Exposure, in records: inout UserRecords) -> Int64 {
        guard let active = exposure.active else { return AllocationPeriod.unknown }
        let decided = period(of: active, experimentID: exposure.experimentID, in: &records)
        if exposure.isImported { return decided.number }
        let known = records.periods.filter { $0.sdkKey == active.sdkKey }
        func current(at time: Instant) -> AllocationPeriod? {
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

    /// Returns the stored period of the datafile by which an exposure was decided.
    ///
    /// A server of an earlier release may have stored the datafile without its period. The period is then stored now,
    /// unless the project had the same allocation before.
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

    /// Returns when the user got the variation; `nil` if the profile does not have it.
    ///
    /// Assignments that this server has bucketed have the time of the decision. An app server may have shown the
    /// variation before it saved the assignment, so the time of a saved assignment is only an upper bound.
    private static func assignmentTime(_ exposure: Exposure, _ records: UserRecords) -> Instant? {
        guard case .present(let profile) = records.profile, let newest = profile[exposure.experimentID],
            let assignment = newest.variationID == exposure.variationID ? newest : newest.withoutOverride,
            assignment.variationID == exposure.variationID
        else { return nil }
        return assignment.source == .bucketed
            ? assignment.assignedAt : min(assignment.assignedAt, exposure.happenedAt)
    }
}

extension Datafile {
    /// Returns the experiment of an id, unless it is a targeted rollout; or the comparison of the holdout with this id.
    fileprivate func measured(_ id: Identifier) -> Experiment? {
        holdouts.last { $0.id == id && $0.comparison != nil }?.comparison
            ?? (isDeliveryRule(id) ? nil : experiment(id: id))
    }
}
