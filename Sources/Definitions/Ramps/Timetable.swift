public import Bucketing
public import Chronology
import JSON

/// What an experiment's schedule, ramp or bandit does by itself.
package enum TimedChange: Sendable, Equatable {
    /// A draft starts to run.
    case start
    /// Enrollment closes.
    case end
    /// A step of the ramp begins; the index of the step.
    case begin(step: Int)
    case complete
    /// The ramp waits, because the experiment enrolls nobody.
    case wait
    /// What is wrong, in a sentence.
    case alarm(String)
    /// The next step is not possible.
    case hold(String)
    /// The bandit looks at the users; `nil` before they were looked at.
    case weigh(Bandit.Look?)
}

/// What is known of the users of an experiment when it is asked what is due.
package struct WatchedUsers: Sendable, Equatable {
    package var evidence: Ramp.Evidence
    /// What is wrong, in a sentence; `nil` if nothing is.
    package var alarm: String?
    /// What the experiment's bandit has found.
    package var look: Bandit.Look?

    package init(evidence: Ramp.Evidence, alarm: String? = nil, look: Bandit.Look? = nil) {
        self.evidence = evidence
        self.alarm = alarm
        self.look = look
    }
}

extension ProjectDefinitions {
    /// The keys of the experiments whose schedule, ramp or bandit still has something to do.
    package var timedExperiments: [Identifier] {
        experiments.notable.filter(\.isTimed).map(\.key)
    }

    /// Returns what the schedule, the bandit or the ramp of an experiment is to do.
    ///
    /// - Parameter users: `nil` before they were looked at. Then a step that depends on them is not due.
    package func timedChange(of key: Identifier, at now: Instant, _ users: WatchedUsers?) -> TimedChange? {
        guard let experiment = experiments[key] else { return nil }
        if let schedule = experiment.details.schedule {
            if experiment.isDraft, schedule.startedAt == nil, let startAt = schedule.startAt, now >= startAt {
                return .start
            }
            if !experiment.isDraft, schedule.endedAt == nil, let endAt = schedule.endAt, now >= endAt { return .end }
        }
        if let bandit = experiment.details.bandit, isEnrolling(experiment), bandit.isDue(at: now) {
            return .weigh(users?.look)
        }
        guard let ramp = experiment.details.ramp else { return nil }
        switch (ramp.state.status, isEnrolling(experiment)) {
        case (.waiting, true): return .begin(step: ramp.state.step)
        case (.active, false): return .wait
        case (.active, true):
            if let alarm = users?.alarm { return .alarm(alarm) }
            guard ramp.isStepOver(at: now, users?.evidence) else { return nil }
            let next = ramp.state.step + 1
            return next < ramp.steps.count ? .begin(step: next) : .complete
        default: return nil
        }
    }

    /// Whether users are looked at for the ramp of an experiment.
    package func isRamping(_ key: Identifier) -> Bool {
        experiments[key].map { $0.details.ramp?.state.status == .active && isEnrolling($0) } ?? false
    }

    private func isEnrolling(_ experiment: ExperimentDefinition) -> Bool {
        experiment.status == ExperimentStatus.running.rawValue && !experiment.isClosed
            && flags(ofExperiment: experiment.id).allSatisfy(\.isEnabled)
    }

    /// Makes a change that is due.
    ///
    /// - Throws: 422 if the group of the experiment has no room for the traffic.
    package mutating func apply(
        _ change: TimedChange, to key: Identifier, at now: Instant, _ evidence: Ramp.Evidence?
    ) throws(CoreError) {
        guard var experiment = experiments[key] else { return }
        let (split, traffic) = (experiment.split, experiment.enrolledTraffic)
        let isGrouped = group(of: experiment)?.name != nil
        switch change {
        case .start:
            experiment.details.schedule?.startedAt = now
            experiment.status = ExperimentStatus.running.rawValue
        case .end:
            experiment.details.schedule?.endedAt = now
            experiment.isClosed = true
        case .begin(let step):
            experiment.details.ramp?.begin(step, at: now, evidence)
            experiment.allocate(
                traffic: experiment.details.ramp?.step.traffic ?? traffic, since: split, isGrouped: isGrouped)
        case .complete: experiment.details.ramp?.end(.completed, at: now, nil, evidence)
        case .wait: experiment.details.ramp?.end(.waiting, at: now, nil, nil)
        case .weigh(let look):
            let look = look ?? Bandit.Look()
            experiment.details.bandit?.note(look, at: now)
            guard let shares = experiment.shares(look) else { break }
            for (index, share) in shares.enumerated() {
                experiment.variations[index].weight = (share * 100).rounded() / 100
            }
            experiment.allocate(traffic: traffic, since: split, dividesAnew: true, isGrouped: isGrouped)
        case .hold(let reason): experiment.details.ramp?.end(.held, at: now, reason, nil)
        case .alarm(let reason):
            guard let ramp = experiment.details.ramp else { return }
            let isHeld = ramp.alarmAction == .hold
            experiment.details.ramp?.end(isHeld ? .held : .stopped, at: now, reason, evidence)
            if ramp.alarmAction == .pause || ramp.alarmAction == .back && !ramp.keepsUsers {
                experiment.status = ExperimentStatus.paused.rawValue
            }
            if ramp.alarmAction == .back {
                experiment.allocate(traffic: 0, since: split, isGrouped: isGrouped)
            }
        }
        try set(experiment)
    }

    /// Ends the ramp of an experiment by hand, or lets it go on where it ended.
    ///
    /// - Throws: 409 if it has none, or none that can be ended or resumed.
    public mutating func control(rampOf key: Identifier, _ control: RampControl, at now: Instant) throws(CoreError) {
        guard var experiment = experiments[key] else { return }
        guard var ramp = experiment.details.ramp else {
            throw CoreError(.conflict, "the experiment must have a `ramp`; '\(key)' has none")
        }
        guard control.statuses.contains(ramp.state.status) else {
            let names = control.statuses.map(\.rawValue).joined(separator: ", ")
            throw CoreError(
                .conflict,
                "to \(control.rawValue) it, a ramp must be one of \(names); that of '\(key)' is "
                    + ramp.state.status.rawValue)
        }
        switch control {
        case .stop: ramp.end(.ended, at: now, "stopped by hand", nil)
        case .resume: ramp.end(.waiting, at: now, nil, nil)
        }
        experiment.details.ramp = ramp
        experiments.set(experiment)
    }
}

extension ExperimentDefinition {
    /// Returns the percentage of users that each variation gets after a look of the bandit; `nil` if the weights stay.
    package func shares(_ look: Bandit.Look) -> [Double]? {
        let weights = split.weights
        let sum = weights.values.reduce(0, +)
        let variations = variations.map { variation in
            (id: variation.id, share: sum > 0 ? (weights[variation.id] ?? 0) / sum * 100 : 0)
        }
        return details.bandit?.shares(look, variations)
    }
}

/// What a person may do to a ramp.
public enum RampControl: String, Sendable, CaseIterable {
    case stop, resume

    /// Those in which a ramp can be controlled so.
    fileprivate var statuses: [Ramp.Status] {
        switch self {
        case .stop: [.waiting, .active, .held]
        case .resume: [.held, .stopped, .ended]
        }
    }
}
