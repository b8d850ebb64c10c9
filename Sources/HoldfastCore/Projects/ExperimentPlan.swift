import Bucketing
import Definitions
import JSON

/// By which rule an experiment is to be decided: what was said of it before the start holds, and what is said later shows.
struct ExperimentPlan: Sendable, Equatable {
    /// `nil` for the default, as is the power.
    var alpha: Double?
    var power: Double?
    /// The smallest effect of interest, as a share of the baseline's mean.
    var minimumEffect: Double?
    /// What was planned when the experiment started; `nil` if it has not, or if nothing was planned.
    var start: Start?

    struct Start: Sendable, Equatable {
        /// Of the project's datafile.
        var revision: String
        var plan: JSONObject
    }

    static let defaultAlpha = 0.05
    static let defaultPower = 0.8

    init() {}

    /// Reads what is stored.
    init(stored value: JSONValue?) {
        let object = value?.object
        alpha = object?["alpha"]?.double
        power = object?["power"]?.double
        minimumEffect = object?["minimum_effect"]?.double
        start = (object?["start"]?.object).flatMap { start in
            start["plan"]?.object.map { Start(revision: start["revision"]?.string ?? "", plan: $0) }
        }
    }

    /// What the member `plan` of a change says. Members that are left out keep their values; null stands for the default.
    struct Change: Sendable {
        private var alpha: Double??
        private var power: Double??
        private var minimumEffect: Double??

        static let members = ["alpha", "power", "minimum_effect"]

        /// - Parameter value: null for defaults only.
        init(_ value: JSONValue, _ faults: inout FaultCollector) {
            guard !value.isNull else {
                (alpha, power, minimumEffect) = (.some(nil), .some(nil), .some(nil))
                return
            }
            let place: JSONPointer = ["plan"]
            let shown = ["fixed_at_revision", "changed_since_start"]
            guard
                let object = faults.object(
                    value, "`plan`", knowing: Self.members, ignoring: shown, at: place)
            else { return }
            if object["alpha"] != nil {
                alpha = .some(faults.number(object, "alpha", PlanRequest.alphas, "0.05", in: place))
            }
            if object["power"] != nil {
                power = .some(faults.number(object, "power", PlanRequest.powers, "0.8", in: place))
            }
            if object["minimum_effect"] != nil {
                minimumEffect = .some(
                    faults.number(
                        object, "minimum_effect", MetricDefinition.minimumEffects, "0.05 for 5% of the baseline",
                        in: place))
            }
        }

        /// Changes a plan. What was planned at the start stays.
        func apply(to plan: inout ExperimentPlan) {
            plan.alpha = alpha ?? plan.alpha
            plan.power = power ?? plan.power
            plan.minimumEffect = minimumEffect ?? plan.minimumEffect
        }
    }

    var isEmpty: Bool { self == ExperimentPlan() }

    /// What is said of the rule.
    fileprivate var members: JSONObject {
        var object = JSONObject()
        object["alpha"] = alpha.map { .shortest($0) }
        object["power"] = power.map { .shortest($0) }
        object["minimum_effect"] = minimumEffect.map { .shortest($0) }
        return object
    }

    /// What is stored.
    var json: JSONValue {
        var object = members
        object["start"] = start.map { ["revision": .string($0.revision), "plan": .object($0.plan)] }
        return .object(object)
    }
}

extension ExperimentDefinition {
    /// Whether anybody may have taken part.
    var hasStarted: Bool { !isDraft && status != ExperimentStatus.notStarted.rawValue }
}

extension ProjectDefinitions {
    /// Everything that is planned of an experiment.
    private func plan(of experiment: ExperimentDefinition) -> JSONObject {
        var plan = experiment.details.plan.members
        let measured = experiment.details.metrics
        for member in measured.json.object ?? JSONObject() where member.value.array?.isEmpty == false {
            plan["metrics.\(member.key)"] = member.value
        }
        for key in measured.all {
            guard var metric = metrics[key]?.json else { continue }
            metric["description"] = nil
            plan["metric \(key)"] = .object(metric)
        }
        return plan
    }

    /// Keeps what is planned of the experiments that a change starts.
    mutating func fixPlans(since former: ProjectDefinitions?) {
        for experiment in experiments
        where experiment.status == ExperimentStatus.running.rawValue && experiment.details.plan.start == nil
            && former?.experiments[experiment.key]?.hasStarted != true
        {
            let plan = plan(of: experiment)
            guard !plan.isEmpty else { continue }
            var started = experiment
            started.details.plan.start = .init(revision: revision, plan: plan)
            experiments.set(started)
        }
    }

    /// The names of what is planned otherwise than when the experiment started.
    func planChanges(of experiment: ExperimentDefinition) -> [String] {
        guard experiment.hasStarted else { return [] }
        let (now, start) = (plan(of: experiment), experiment.details.plan.start?.plan ?? JSONObject())
        var names: [String] = []
        for member in now where start[member.key] != member.value { names.append(member.key) }
        for member in start where now[member.key] == nil { names.append(member.key) }
        return names.sorted()
    }

    /// The member `plan` of an experiment; `nil` if nothing is planned.
    func planDescription(of experiment: ExperimentDefinition) -> JSONValue? {
        let plan = experiment.details.plan
        guard !plan.isEmpty || !self.plan(of: experiment).isEmpty else { return nil }
        return [
            "alpha": .shortest(plan.alpha ?? ExperimentPlan.defaultAlpha),
            "power": .shortest(plan.power ?? ExperimentPlan.defaultPower),
            "minimum_effect": plan.minimumEffect.map { .shortest($0) } ?? .null,
            "fixed_at_revision": plan.start.map { .string($0.revision) } ?? .null,
            "changed_since_start": .array(planChanges(of: experiment).map { .string($0) }),
        ]
    }
}

extension FaultCollector {
    /// Returns a member that is a number in a range; `nil` if it is absent, null or wrong.
    mutating func number(
        _ object: JSONObject, _ name: String, _ range: ClosedRange<Double>, _ example: String,
        in place: JSONPointer = []
    ) -> Double? {
        guard let value = object[name], !value.isNull else { return nil }
        guard let number = value.double, range.contains(number) else {
            let found = value.double.map { "\($0)" } ?? value.kind
            add(
                "`\(name)` must be a number from \(range.lowerBound) to \(range.upperBound), such as \(example); got "
                    + found, at: place.appending(name))
            return nil
        }
        return number
    }
}
