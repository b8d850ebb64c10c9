/// What a client was told of one change of an experiment. Times are nanoseconds of the monotonic clock.
struct ExperimentChange: Sendable {
    let experiment: String
    let variations: [String]
    let invokedAt: UInt64
    /// When the response had been received; `.max` without one.
    let returnedAt: UInt64
    /// The datafile's revision after the change; `nil` when it may not have happened.
    let revision: Int?
}

/// Which variations an experiment may have had at which time, by what clients were told of their changes.
///
/// The revisions say in which order changes happened, and requests and answers between which moments.
struct ExperimentTimeline: Sendable {
    private struct Period {
        let variations: [String]
        let start: UInt64
        var end: UInt64
    }

    /// By experiment.
    private var periods: [String: [Period]] = [:]

    /// - Parameter experiments: as they are before the first change.
    init(_ experiments: [DatafileExperiment], changes: [ExperimentChange]) {
        for experiment in experiments {
            var periods = [Period(variations: experiment.variations, start: 0, end: .max)]
            let own = changes.filter { $0.experiment == experiment.id }
            for change in own.filter({ $0.revision != nil }).sorted(by: Self.isEarlier) {
                periods[periods.count - 1].end = change.returnedAt
                periods.append(Period(variations: change.variations, start: change.invokedAt, end: .max))
            }
            // A change without a response may have happened at any time after it was asked for.
            periods += own.filter { $0.revision == nil }.map {
                Period(variations: $0.variations, start: $0.invokedAt, end: .max)
            }
            self.periods[experiment.id] = periods
        }
    }

    private static func isEarlier(_ left: ExperimentChange, _ right: ExperimentChange) -> Bool {
        (left.revision ?? 0, left.invokedAt) < (right.revision ?? 0, right.invokedAt)
    }

    /// The operation with the variations that its experiment may have had during this time.
    func refined(_ operation: Operation, during time: ClosedRange<UInt64>) -> Operation {
        guard let experiment = operation.dependsOnVariations, let all = periods[experiment] else { return operation }
        let possible = all.filter { $0.start <= time.upperBound && $0.end >= time.lowerBound }
        let among = possible.reduce(into: Set<String>()) { $0.formUnion($1.variations) }
        let lasting = possible.reduce(among) { $0.intersection($1.variations) }
        return operation.refined(among: among.sorted(), lasting: lasting.sorted())
    }
}

extension Operation {
    /// The experiment whose variations say what the operation may do; `nil` if none does.
    fileprivate var dependsOnVariations: String? {
        switch self {
        case .assign(let experiment, _, _), .evaluate(let experiment, _, _), .expose(let experiment, _, _, _),
            .assignBeside(_, let experiment, _, _):
            experiment
        default: nil
        }
    }

    fileprivate func refined(among: [String], lasting: [String]) -> Operation {
        switch self {
        case .assign(let experiment, _, _): .assign(experiment: experiment, among: among, lasting: lasting)
        case .evaluate(let experiment, _, _): .evaluate(experiment: experiment, among: among, lasting: lasting)
        case .assignBeside(let anonymous, let experiment, _, _):
            .assignBeside(anonymous, experiment: experiment, among: among, lasting: lasting)
        case .expose(let experiment, let variation, _, _):
            .expose(experiment: experiment, variation: variation, among: among, lasting: lasting)
        default: self
        }
    }
}
