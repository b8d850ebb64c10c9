public import Bucketing
public import Chronology
import Definitions
public import Storage

/// The summary of an experiment for a list: its users, its verdict, and its alarms.
public struct ExperimentOverview: Sendable {
    /// The number of users whom results count.
    public let users: Int
    /// The counted users of each UTC day of enrollment, in order. Days without users are left out.
    public let days: [(day: ExperimentTally.Day, users: Int)]
    /// The decision by all metrics of the experiment; `nil` if the experiment has no metrics, or if the experiment is
    /// neither running nor paused.
    public private(set) var decision: Verdict.Decision?
    /// The key of the variation to ship; `nil` unless the decision is to ship one.
    public private(set) var winner: Identifier?
    /// The lift of the winner in the first primary metric that it improves; `nil` without a winner or a bounded lift.
    public private(set) var lift: Double?
    /// The state of the users, and the alarms about them.
    let watch: UserWatch
    /// The alarms as sentences, by kind.
    public var alarms: [ExperimentWarning: String] { watch.alarms }

    /// Reads the current totals of an experiment and summarizes them.
    public static func read(
        _ experiment: Experiment, of project: Project, at now: Instant, _ session: any StoreSession
    ) async throws -> ExperimentOverview {
        let tally = try await session.read(.users(experimentID: experiment.id))
        let watch = try await UserWatch.read(experiment, of: project, tally, at: now, session)
        var overview = ExperimentOverview(experiment, tally, watch)
        guard mayHaveVerdict(experiment, of: project), let plan = project.plan(of: experiment) else {
            return overview
        }
        let reader = ResultsReader(ResultsScope(experiment, in: project, .live, at: now), session)
        if let results = try await reader.totals(of: plan).results() { overview.judge(results) }
        return overview
    }

    /// Summarizes an experiment that has no users. The store need not be read: without users, no variation can be
    /// better or worse, so the decision is to continue.
    init(withoutUsers experiment: Experiment, of project: Project) {
        self.init(experiment, ExperimentTally(), UserWatch(experiment, ExperimentTally()))
        if Self.mayHaveVerdict(experiment, of: project), project.plan(of: experiment) != nil { decision = .continue }
    }

    /// Whether an experiment is running or paused, and has metrics.
    private static func mayHaveVerdict(_ experiment: Experiment, of project: Project) -> Bool {
        (experiment.isRunning || experiment.status == ExperimentStatus.paused.rawValue)
            && !experiment.annotations.isDraft && !project.metrics(of: experiment).isEmpty
    }

    /// Counts the users. Users of variations that the experiment no longer has do not count.
    private init(_ experiment: Experiment, _ tally: ExperimentTally, _ watch: UserWatch) {
        let currentIDs = Set(experiment.variations.map(\.id))
        days = tally.days.compactMap { day in
            let users = day.variations.reduce(0) { currentIDs.contains($1.variationID) ? $0 + $1.counted : $0 }
            return users > 0 ? (day, users) : nil
        }
        users = days.reduce(0) { $0 + $1.users }
        self.watch = watch
    }

    /// Adds the verdict, and the lift of the variation to ship.
    private mutating func judge(_ results: PlanResults) {
        decision = results.verdict.decision
        guard let index = results.verdict.winner else { return }
        winner = results.common.variations[index].key
        let gain = results.verdict.findings.first { finding in
            finding.variation == index && finding.role == .primary && finding.outcome == .better
        }
        lift = gain?.effect?.lift
    }
}
