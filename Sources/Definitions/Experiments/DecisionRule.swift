import Bucketing
package import JSON

/// The plan by which an experiment is decided: the accepted error probabilities and the smallest effect of interest.
///
/// A plan counts only if it was made before results were known. So the server records the plan when the experiment
/// starts (``ProjectDefinitions/fixPlans(since:)``), and `GET` lists the parts that were changed since then.
package struct DecisionRule: Sendable, Equatable {
    /// The probability of deciding for a difference that does not exist; `nil` for ``defaultAlpha``.
    package var alpha: Double?
    /// The probability of finding the minimum effect; `nil` for ``defaultPower``.
    package var power: Double?
    /// The smallest effect of interest, as a share of the baseline's mean.
    package var minimumEffect: Double?
    /// The plan at the start of the experiment; `nil` if it has not started, or if nothing was planned.
    var start: Start?

    /// The plan that was recorded when the experiment started.
    struct Start: Sendable, Equatable {
        /// The revision of the datafile that started the experiment.
        var revision: String
        /// See ``ProjectDefinitions/plan(of:)``.
        var plan: JSONObject
    }

    /// The values that ``alpha`` may have.
    package static let alphas = 0.0001...0.5
    /// The values that ``power`` may have.
    package static let powers = 0.5...0.9999
    package static let defaultAlpha = 0.05
    package static let defaultPower = 0.8

    init() {}

    /// Reads a stored plan.
    init(stored value: JSONValue?) {
        let object = value?.object
        Self.members.readStored(object ?? JSONObject(), into: &self)
        start = (object?["start"]?.object).flatMap { start in
            start["plan"]?.object.map { Start(revision: start["revision"]?.string ?? "", plan: $0) }
        }
    }

    package static let members = MemberTable<DecisionRule>(
        "`plan`", blank: DecisionRule(), showing: ["fixed_at_revision", "changed_since_start"],
        [
            Member(
                "alpha", \.alpha, Form<Double>.number(alphas, suchAs: "0.05").optional(),
                "The probability of deciding for a difference that does not exist.", .cleared),
            Member(
                "power", \.power, Form<Double>.number(powers, suchAs: "0.8").optional(),
                "The probability of finding the minimum effect.", .cleared),
            Member(
                "minimum_effect", \.minimumEffect,
                Form<Double>.number(MetricDefinition.minimumEffects, suchAs: "0.05 for 5% of the baseline").optional(),
                "The smallest effect of interest, as a share of the baseline.", .cleared),
        ])

    var isEmpty: Bool { self == DecisionRule() }

    /// The members that an admin sets, without the record of the start.
    package var definition: JSONObject {
        var object = JSONObject()
        Self.members.show(self, in: &object)
        return object
    }

    /// The plan as it is stored.
    var json: JSONValue {
        var object = definition
        object["start"] = start.map { ["revision": .string($0.revision), "plan": .object($0.plan)] }
        return .object(object)
    }
}

extension ExperimentDefinition {
    /// Whether the experiment has started, so that users may have taken part.
    var hasStarted: Bool { !isDraft && status != ExperimentStatus.notStarted.rawValue }
}

extension ProjectDefinitions {
    /// Returns everything that counts as planned: the decision rule, the metrics with their roles, and the definitions
    /// of the metrics without their descriptions.
    private func plan(of experiment: ExperimentDefinition) -> JSONObject {
        var plan = experiment.details.plan.definition
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

    /// Records the plans of the experiments that a change starts.
    mutating func fixPlans(since former: ProjectDefinitions?) {
        for experiment in editedExperiments(since: former)
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

    /// Returns the names of the parts of the plan that have changed since the experiment started.
    func planChanges(of experiment: ExperimentDefinition) -> [String] {
        guard experiment.hasStarted else { return [] }
        let now = plan(of: experiment)
        let start = experiment.details.plan.start?.plan ?? JSONObject()
        var names: [String] = []
        for member in now where start[member.key] != member.value { names.append(member.key) }
        for member in start where now[member.key] == nil { names.append(member.key) }
        return names.sorted()
    }

    /// Returns the member `plan` of a response; `nil` if nothing is planned.
    package func planDescription(of experiment: ExperimentDefinition) -> JSONValue? {
        let plan = experiment.details.plan
        guard !plan.isEmpty || !self.plan(of: experiment).isEmpty else { return nil }
        return [
            "alpha": .shortest(plan.alpha ?? DecisionRule.defaultAlpha),
            "power": .shortest(plan.power ?? DecisionRule.defaultPower),
            "minimum_effect": plan.minimumEffect.map { .shortest($0) } ?? .null,
            "fixed_at_revision": plan.start.map { .string($0.revision) } ?? .null,
            "changed_since_start": .array(planChanges(of: experiment).map { .string($0) }),
        ]
    }
}
