import Bucketing

/// The rules of allocation periods: under which allocation a user got a variation.
///
/// A period begins with the first exposure under an allocation that its project did not have before; its time is that of
/// the datafile. An exposure belongs to the period in which the user was assigned, if the profile has the assignment:
/// users keep their variation, so that somebody enrolled under an earlier allocation may be exposed under a later one.
/// Otherwise it belongs to the period of the datafile that it was decided with, or of the time at which it happened if
/// that was before this datafile.
enum AllocationRules {
    /// What the period of an exposure depends on.
    static func parts(_ exposure: Exposure) -> [UserRecords.Part] {
        exposure.active == nil ? [] : [.periods(experimentID: exposure.experimentID), .profile]
    }

    /// Returns the number of the exposure's period, and stores the period if it is new.
    static func period(of exposure: Exposure, in records: inout UserRecords) -> Int64 {
        guard let active = exposure.active else { return AllocationPeriod.unknown }
        let decided = period(of: active, experimentID: exposure.experimentID, in: &records)
        let known = records.periods.filter { $0.sdkKey == active.sdkKey }
        func current(at time: Timestamp) -> AllocationPeriod? {
            known.filter { $0.since <= time }.max(by: isBefore) ?? known.min(by: isBefore)
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

    /// Returns the period of a datafile, which begins one unless the project had the same allocation before.
    private static func period(
        of active: AllocationPeriod, experimentID: Identifier, in records: inout UserRecords
    ) -> AllocationPeriod {
        let known = records.periods.filter { $0.sdkKey == active.sdkKey }
        if let same = known.first(where: { $0.number == active.number }) { return same }
        let former = known.filter { isBefore($0, active) }.max(by: isBefore)
        if let former, former.allocation == active.allocation { return former }
        records.add(active, of: experimentID)
        return active
    }

    private static func isBefore(_ left: AllocationPeriod, _ right: AllocationPeriod) -> Bool {
        (left.since, left.number) < (right.since, right.number)
    }

    /// When the user got the variation; `nil` if the profile does not have it.
    private static func assignmentTime(_ exposure: Exposure, _ records: UserRecords) -> Timestamp? {
        guard case .present(let profile) = records.profile, let assignment = profile[exposure.experimentID] else {
            return nil
        }
        if assignment.variationID == exposure.variationID { return assignment.assignedAt }
        let beneath = assignment.withoutOverride
        return beneath?.variationID == exposure.variationID ? beneath?.assignedAt : nil
    }
}
