public import Bucketing
import Chronology

/// The rules of allocation periods, which determine the allocation under which a user got a variation.
///
/// A period begins with the datafile that changes the allocation, even if nobody is exposed in the period. The period
/// of an exposure is the first in this list that applies:
///
/// 1. For an imported exposure, the period of the import, with the shares of the import.
/// 2. If the profile has the assignment, the period in which the user was assigned. Users keep their variation, so a
///    user who was enrolled under an earlier allocation may be exposed under a later one.
/// 3. If the exposure happened before its datafile was stored, the period at the time of the exposure. The datafile of
///    an exposure is the one with which the variation was determined.
/// 4. The period of the datafile of the exposure.
public enum AllocationRules {
    /// Returns the allocation of each experiment in a datafile. Targeted rollouts are left out, because their
    /// variations are not stored.
    ///
    /// - Parameter former: a datafile whose allocations are stored already. If it is given, only the allocations that
    ///   differ from it are returned.
    public static func allocations(
        in datafile: Datafile, since former: Datafile? = nil
    ) -> [Identifier: TrafficAllocation] {
        measured(in: datafile, since: former, \.plannedAllocation)
    }

    /// Returns a value for each measured experiment in a datafile: all experiments except targeted rollouts, and the
    /// comparison of each holdout.
    ///
    /// - Parameters:
    ///   - former: a datafile whose values are known. If it is given, only the values that differ from it are returned.
    ///   - part: returns the value of an experiment.
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
        let ofDatafile = storedPeriod(of: active, experimentID: exposure.experimentID, in: &records)
        if exposure.isImported { return ofDatafile.number }
        let ofProject = records.periods.filter { $0.sdkKey == active.sdkKey }
        func current(at time: Instant) -> AllocationPeriod? {
            // Before the first stored period the allocation is unknown. The first period is the closest to it.
            ofProject.current(at: time) ?? ofProject.earliest
        }
        let period =
            if let assignedAt = assignmentTime(exposure, records) {
                current(at: assignedAt)
            } else if exposure.happenedAt < active.since {
                current(at: exposure.happenedAt)
            } else {
                ofDatafile
            }
        return period?.number ?? ofDatafile.number
    }

    /// Returns the stored period of the datafile of an exposure.
    ///
    /// A server of an earlier release may have stored the datafile without its period. The period is then stored now,
    /// unless the preceding period has the same allocation and therefore continues.
    private static func storedPeriod(
        of active: AllocationPeriod, experimentID: Identifier, in records: inout UserRecords
    ) -> AllocationPeriod {
        let ofProject = records.periods.filter { $0.sdkKey == active.sdkKey }
        if let same = ofProject.first(where: { $0.number == active.number }) { return same }
        let former = ofProject.filter { AllocationPeriod.isBefore($0, active) }.max(by: AllocationPeriod.isBefore)
        if let former, former.allocation == active.allocation { return former }
        records.add(active, of: experimentID)
        return active
    }

    /// Returns when the user got the variation of an exposure; `nil` if the profile does not have this variation.
    private static func assignmentTime(_ exposure: Exposure, _ records: UserRecords) -> Instant? {
        guard case .present(let profile) = records.profile, let stored = profile[exposure.experimentID] else {
            return nil
        }
        // The variation may be that of an override, or of the assignment that the override covers.
        let candidates = [stored, stored.withoutOverride].compactMap(\.self)
        guard let assignment = candidates.first(where: { $0.variationID == exposure.variationID }) else { return nil }
        // A bucketed assignment has the time of the decision. An app server may have shown the variation before it
        // saved the assignment, so the time of a saved assignment is only an upper bound.
        if assignment.source == .bucketed { return assignment.assignedAt }
        return min(assignment.assignedAt, exposure.happenedAt)
    }
}

extension Datafile {
    /// Returns the comparison of the holdout with an id, or else the experiment with this id; `nil` for a targeted
    /// rollout and an unknown id.
    fileprivate func measured(_ id: Identifier) -> Experiment? {
        holdouts.last { $0.id == id && $0.comparison != nil }?.comparison
            ?? (isDeliveryRule(id) ? nil : experiment(id: id))
    }
}
