package import Chronology

/// Raises the traffic of an experiment in steps, until the last step is reached or an alarm stops it.
///
/// The server looks at the experiment's users, and asks ``ProjectDefinitions/timedChange(of:at:_:)`` what is due. A
/// step ends after a time, or once a number of users is enrolled:
///
/// ```
/// waiting -> active -> waiting            (while the experiment enrolls nobody)
///            active -> active             (the next step)
///            active -> completed          (the last step)
///            active -> held or stopped    (an alarm, or a step that is not possible)
/// ```
///
/// A person may end a ramp, and resume one that was held, stopped or ended.
package struct Ramp: Sendable, Equatable {
    struct Step: Sendable, Equatable {
        /// The percentage of users who are enrolled.
        var traffic: Double
        /// How long the step lasts, as it was given, such as `12h`; `nil` if it does not end after a time.
        var duration: String?
        /// The number of enrolled users that ends the step; `nil` if it does not end by their number.
        var users: Int?

        /// Whether the step has no end, so that the ramp is completed when the step begins.
        var isOpen: Bool { duration == nil && users == nil }
    }

    /// The effect of an alarm. A sample ratio mismatch is an alarm, and so is a guardrail metric that has become worse.
    package enum AlarmAction: String, Sendable, CaseIterable {
        /// The experiment is paused.
        case pause
        /// The traffic stays.
        case hold
        /// The traffic goes back to 0. Unless ``keepsUsers`` is set, the experiment is also paused.
        case back
    }

    package enum Status: String, Sendable, CaseIterable {
        /// The step begins once the experiment runs and enrolls users.
        case waiting
        /// The step has begun.
        case active
        /// The traffic stays, because of an alarm or because the next step is not possible.
        case held
        /// An alarm has paused the experiment, or taken back its traffic.
        case stopped
        /// A person has ended the ramp.
        case ended
        /// The last step has been reached.
        case completed
    }

    /// The progress of the ramp.
    package struct State: Sendable, Equatable {
        package var status = Status.waiting
        /// The index of the current step.
        var step = 0
        /// When the current step began; when the status began, if no step is active.
        package var since: Instant?
        /// When the next step is due; `nil` if that depends on the number of users.
        var dueAt: Instant?
        /// Why the ramp does not go on.
        package var reason: String?
        /// The state of the users when the last step began, or when it was last left with a look at the users.
        package var evidence: Evidence?
    }

    /// The state of an experiment's users by which a ramp goes on.
    package struct Evidence: Sendable, Equatable {
        /// Enrolled users.
        package var users: Int
        /// The always-valid p-value of the sample ratio; `nil` without users.
        package var sampleRatio: Double?

        package init(users: Int, sampleRatio: Double? = nil) {
            self.users = users
            self.sampleRatio = sampleRatio
        }
    }

    var steps: [Step]
    var alarmAction = AlarmAction.pause
    /// Whether enrolled users keep their variation after ``AlarmAction/back``.
    var keepsUsers = true
    package var state = State()

    /// The maximum number of steps.
    static let greatestStepCount = 20

    /// The current step.
    var step: Step { steps[min(state.step, steps.count - 1)] }

    /// Whether the ramp goes on by itself.
    package var isPending: Bool { state.status == .waiting || state.status == .active }

    /// Whether the current step is over.
    ///
    /// - Parameter evidence: `nil` if the users have not been looked at yet.
    func isStepOver(at now: Instant, _ evidence: Evidence?) -> Bool {
        if let dueAt = state.dueAt { return now >= dueAt }
        if let users = step.users { return evidence.map { $0.users >= users } ?? false }
        return true
    }

    /// Returns the ramp with the state of the one that it replaces.
    ///
    /// An unchanged ramp keeps its state. A changed one goes on at the same step, if the former ramp is not completed
    /// and the step has the same traffic in both; otherwise it begins anew.
    func replacing(_ former: Ramp?) -> Ramp {
        guard let former else { return self }
        var ramp = self
        ramp.state = former.state
        guard ramp != former else { return former }
        let goesOn =
            former.state.status != .completed && former.state.step < steps.count
            && former.step.traffic == ramp.step.traffic
        guard goesOn else { return self }
        if former.state.status == .active {
            ramp.state.dueAt = former.state.since.flatMap { ramp.step.end(since: $0) }
        } else {
            ramp.leaveStep(as: .waiting)
        }
        return ramp
    }

    /// Begins the step with an index. A step without an end completes the ramp.
    mutating func begin(_ step: Int, at now: Instant, _ evidence: Evidence?) {
        state = State(status: .active, step: min(step, steps.count - 1), since: now, evidence: evidence)
        state.dueAt = self.step.end(since: now)
        if self.step.isOpen { state.status = .completed }
    }

    /// Ends or interrupts the current step.
    ///
    /// - Parameter evidence: `nil` to keep what was known before.
    mutating func leaveStep(
        as status: Status, at now: Instant? = nil, because reason: String? = nil, evidence: Evidence? = nil
    ) {
        state = State(
            status: status, step: state.step, since: now, reason: reason, evidence: evidence ?? state.evidence)
    }
}

extension Ramp.Step {
    private static let lengths = TimeSpan.seconds(1)...TimeSpan.days(366)

    /// Parses a time from 1 second to 366 days, such as `90s`, `30m`, `12h` or `2d`; `nil` for any other text.
    static func span(_ text: String) -> TimeSpan? {
        TimeSpan(text).flatMap { lengths.contains($0) ? $0 : nil }
    }

    /// When the step ends; `nil` if it has no duration.
    func end(since start: Instant) -> Instant? {
        duration.flatMap(Self.span).map { start + $0 }
    }
}
