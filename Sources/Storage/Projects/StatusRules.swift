public import Bucketing
public import Chronology

/// A period in which an experiment had the same status in one project.
public struct StatusPeriod: Sendable, Equatable {
    /// The version of the datafile that began the period.
    public var number: Int64
    public var sdkKey: String
    /// When the datafile that began the period was stored.
    public var since: Instant
    /// The status in the datafile; ``ExperimentStatus/draft`` for a draft, which datafiles mark by an annotation.
    public var status: String

    public init(number: Int64, sdkKey: String, since: Instant, status: String) {
        self.number = number
        self.sdkKey = sdkKey
        self.since = since
        self.status = status
    }
}

/// The rules of the status history of experiments. The history shows whether an experiment was running when a user was
/// exposed. The present status does not show this, because the exposure may arrive later.
///
/// A period begins with the datafile that changes the status. Before the first period the experiment counts as running,
/// unless the first period is a draft. There are two reasons: the experiment may have run elsewhere before its datafile
/// came to this server, and exposures from the time before stores kept this history must still count. An experiment
/// without a history counts as running, too.
public enum StatusRules {
    /// Returns the status of each experiment in a datafile except targeted rollouts.
    ///
    /// - Parameter former: a datafile whose statuses are stored already. If it is given, only the statuses that differ
    ///   from it are returned.
    public static func statuses(in datafile: Datafile, since former: Datafile? = nil) -> [Identifier: String] {
        AllocationRules.measured(in: datafile, since: former) {
            $0.annotations.isDraft ? ExperimentStatus.draft.rawValue : $0.status
        }
    }

    /// Returns the periods that a datafile begins, in the order of the experiments' ids.
    ///
    /// - Parameters:
    ///   - statuses: the statuses in the datafile, by experiment.
    ///   - latest: the last period of each experiment in the datafile's project.
    static func periods(
        begunBy datafile: StoredDatafile, _ statuses: [Identifier: String], after latest: [Identifier: StatusPeriod]
    ) -> [StatusPeriod.OfExperiment] {
        statuses.filter { latest[$0.key]?.status != $0.value }.sorted { $0.key < $1.key }.map {
            let period = StatusPeriod(
                number: datafile.version, sdkKey: datafile.sdkKey, since: datafile.storedAt, status: $0.value)
            return (experimentID: $0.key, period: period)
        }
    }

    /// Whether the experiment of an exposure was running when the exposure happened.
    ///
    /// - Parameter periods: the periods of the experiment, in any order.
    static func wasRunning(_ exposure: Exposure, _ periods: [StatusPeriod]) -> Bool {
        let ofProject = periods.filter { $0.sdkKey == exposure.sdkKey }
        if let current = ofProject.current(at: exposure.happenedAt) {
            return current.status == ExperimentStatus.running.rawValue
        }
        return ofProject.earliest?.status != ExperimentStatus.draft.rawValue
    }
}
