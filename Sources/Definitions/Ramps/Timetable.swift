public import Bucketing
public import Chronology
import JSON

/// A change that the server makes by an experiment's schedule, ramp or bandit, without a request.
///
/// The scheduler asks ``ProjectDefinitions/timedChange(of:at:_:)`` what is due, and applies it with
/// ``ProjectDefinitions/apply(_:to:at:_:)``.
package enum TimedChange: Sendable, Equatable {
    /// A draft starts to run.
    case start
    /// Enrollment closes.
    case end
    /// A step of the ramp begins; the index of the step.
    case begin(step: Int)
    /// The last step of the ramp is over.
    case complete
    /// The ramp waits, because the experiment enrolls nobody.
    case wait
    /// An alarm acts on the ramp, see ``Ramp/AlarmAction``; a sentence that says what is wrong.
    case alarm(String)
    /// The ramp is held, because the next step is not possible; a sentence that says why.
    case hold(String)
    /// The bandit sets new weights by what was found about the users; `nil` before they were looked at.
    case weigh(Bandit.Look?)
}

/// The state of an experiment's users, by which ``ProjectDefinitions/timedChange(of:at:_:)`` decides what is due.
package struct WatchedUsers: Sendable, Equatable {
    package var evidence: Ramp.Evidence
    /// A sentence that says what is wrong, such as a sample ratio mismatch; `nil` if there is no alarm.
    package var alarm: String?
    /// The last look of the experiment's bandit at the users; `nil` if the experiment has no bandit.
    package var look: Bandit.Look?

    package init(evidence: Ramp.Evidence, alarm: String? = nil, look: Bandit.Look? = nil) {
        self.evidence = evidence
        self.alarm = alarm
        self.look = look
    }
}

extension ProjectDefinitions {
    /// The keys of the experiments whose schedule or ramp is not over, and of those with a bandit.
    package var timedExperiments: [Identifier] {
        experiments.notable.filter(\.isTimed).map(\.key)
    }

    /// Returns the change of an experiment that is due; `nil` if none is. If several are due, the schedule comes first,
    /// then the bandit, then the ramp.
    ///
    /// - Parameter users: the state of the users; `nil` before it is read. Then no step that ends by the number of
    ///   users is due.
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
        return experiment.details.ramp.flatMap { ramp in
            change(of: ramp, isEnrolling: isEnrolling(experiment), at: now, users)
        }
    }

    /// Returns the change of a ramp that is due; `nil` if none is.
    private func change(
        of ramp: Ramp, isEnrolling: Bool, at now: Instant, _ users: WatchedUsers?
    ) -> TimedChange? {
        switch (ramp.state.status, isEnrolling) {
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

    /// Whether the ramp of an experiment needs the users to be looked at.
    package func isRamping(_ key: Identifier) -> Bool {
        experiments[key].map { $0.details.ramp?.state.status == .active && isEnrolling($0) } ?? false
    }

    /// Whether new users are enrolled: the experiment and its flags are on, and enrollment is open.
    private func isEnrolling(_ experiment: ExperimentDefinition) -> Bool {
        experiment.status == ExperimentStatus.running.rawValue && !experiment.isClosed
            && flags(ofExperiment: experiment.id).allSatisfy(\.isEnabled)
    }

    /// Makes a change that is due.
    ///
    /// - Parameter evidence: what is known of the users; the ramp keeps it in its state.
    /// - Throws: 422 if the group of the experiment has no room for the traffic.
    package mutating func apply(
        _ change: TimedChange, to key: Identifier, at now: Instant, _ evidence: Ramp.Evidence?
    ) throws(CoreError) {
        guard var experiment = experiments[key] else { return }
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
            let traffic = experiment.details.ramp?.step.traffic ?? experiment.enrolledTraffic
            experiment.allocate(traffic: traffic, since: experiment.split, isGrouped: isGrouped)
        case .complete: experiment.details.ramp?.leaveStep(as: .completed, at: now, evidence: evidence)
        case .wait: experiment.details.ramp?.leaveStep(as: .waiting, at: now)
        case .weigh(let look): experiment.weigh(look ?? Bandit.Look(), at: now, isGrouped: isGrouped)
        case .hold(let reason): experiment.details.ramp?.leaveStep(as: .held, at: now, because: reason)
        case .alarm(let reason):
            guard let ramp = experiment.details.ramp else { return }
            experiment.stop(ramp, because: reason, at: now, evidence, isGrouped: isGrouped)
        }
        try set(experiment)
    }

    /// Ends the ramp of an experiment by hand, or resumes it at the step where it ended.
    ///
    /// - Throws: 409 if the experiment has no ramp, or the status of the ramp does not allow it.
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
        case .stop: ramp.leaveStep(as: .ended, at: now, because: "stopped by hand")
        case .resume: ramp.leaveStep(as: .waiting, at: now)
        }
        experiment.details.ramp = ramp
        experiments.set(experiment)
    }
}

extension ExperimentDefinition {
    /// Acts on an alarm as the ramp says.
    fileprivate mutating func stop(
        _ ramp: Ramp, because reason: String, at now: Instant, _ evidence: Ramp.Evidence?, isGrouped: Bool
    ) {
        let former = split
        details.ramp?.leaveStep(
            as: ramp.alarmAction == .hold ? .held : .stopped, at: now, because: reason, evidence: evidence)
        switch ramp.alarmAction {
        case .hold: break
        case .pause: status = ExperimentStatus.paused.rawValue
        case .back:
            if !ramp.keepsUsers { status = ExperimentStatus.paused.rawValue }
            allocate(traffic: 0, since: former, isGrouped: isGrouped)
        }
    }

    /// Notes a look of the bandit, and gives the variations the weights that follow from it, rounded to hundredths.
    fileprivate mutating func weigh(_ look: Bandit.Look, at now: Instant, isGrouped: Bool) {
        let former = split
        let traffic = enrolledTraffic
        details.bandit?.note(look, at: now)
        guard let shares = self.shares(look) else { return }
        for (index, share) in shares.enumerated() { variations[index].weight = (share * 100).rounded() / 100 }
        allocate(traffic: traffic, since: former, dividesAnew: true, isGrouped: isGrouped)
    }

    /// Returns the percentage of users for each variation after a look of the bandit; `nil` if the weights stay.
    package func shares(_ look: Bandit.Look) -> [Double]? {
        let weights = split.weights
        let sum = weights.values.reduce(0, +)
        let variations = variations.map { variation in
            (id: variation.id, share: sum > 0 ? (weights[variation.id] ?? 0) / sum * 100 : 0)
        }
        return details.bandit?.shares(look, variations)
    }
}

/// An action of a person on a ramp.
public enum RampControl: String, Sendable, CaseIterable {
    case stop, resume

    /// The statuses in which a ramp can be stopped or resumed.
    fileprivate var statuses: [Ramp.Status] {
        switch self {
        case .stop: [.waiting, .active, .held]
        case .resume: [.held, .stopped, .ended]
        }
    }
}
