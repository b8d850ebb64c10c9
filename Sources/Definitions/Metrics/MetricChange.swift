public import Bucketing
public import JSON

/// The body of `PUT /v1/metrics/{key}`. Members that it lacks keep their values.
///
/// The members depend on the kind of the metric, and the body may leave the kind out. So the members are read only when
/// the change is applied, and the former metric is known.
public struct MetricChange: ElementChange {
    private let key: Identifier
    private let body: JSONObject

    /// - Throws: 400 if the value is not an object; 422 if it has another key.
    public init(_ value: JSONValue, key: String) throws(CoreError) {
        guard let object = value.object else {
            throw CoreError(.invalid, "a metric must be an object; got \(value.kind)", at: [])
        }
        self.key = Identifier(try NameRule.checkKey(key, at: nil))
        var faults = FaultCollector()
        if let given = faults.collect(try object.optionalText("key")), Identifier(given) != self.key {
            faults.add("`key` must be the key in the path, '\(key)'; got '\(given)'", at: ["key"])
        }
        try faults.check()
        body = object
    }

    /// Creates or changes the metric of a project. A change of the kind drops the members that the new kind does not
    /// have.
    ///
    /// - Returns: whether the metric is new.
    /// - Throws: 422 with every wrong member; 409 if the project has too many metrics, if a concluded experiment has
    ///   results of the former definition, or if `cap` or `adjustment` would change although an experiment has started.
    public func apply(to definitions: inout ProjectDefinitions) throws(CoreError) -> Bool {
        let former = definitions.metrics[key]
        var faults = FaultCollector()
        let metric = MetricDefinition(body, key: key, replacing: former, &faults)
        try faults.check()
        guard let metric else { return false }
        guard former != nil || definitions.metrics.count < MetricDefinition.limit else {
            throw CoreError(.conflict, "at most \(MetricDefinition.limit) metrics may be defined in a project")
        }
        if former?.measures(likeThat: metric) == false, let concluded = definitions.concludedExperiment(measuring: key)
        {
            throw CoreError(
                .conflict,
                "what '\(key)' measures must stay as it is, because the results of '\(concluded)' are kept; define another "
                    + "metric, or reopen the experiment")
        }
        if let former, former.kind == metric.kind, let started = definitions.startedExperiment(measuring: key) {
            if former.cap != metric.cap { throw fixed("cap", by: started) }
            if former.adjustment != metric.adjustment { throw fixed("adjustment", by: started) }
        }
        definitions.metrics.set(metric)
        return former == nil
    }

    /// The error that refuses to change a member once an experiment that measures the metric has started.
    private func fixed(_ member: String, by experiment: Identifier) -> CoreError {
        CoreError(
            .conflict,
            "`\(member)` of '\(key)' must stay as it is, because '\(experiment)' has started: what is chosen by results "
                + "makes them wrong; define another metric", at: [member])
    }

    public var audiences: [(conditions: JSONValue, place: JSONPointer)] { [] }
}

extension ProjectDefinitions {
    /// Removes a metric from the project.
    ///
    /// - Throws: 409 if experiments or holdouts measure it.
    public mutating func removeMetric(_ key: Identifier) throws(CoreError) {
        let users = self.users(ofMetric: key)
        guard users.isEmpty else {
            let list = users.map { "'\($0)'" }.joined(separator: ", ")
            throw CoreError(.conflict, "the metric '\(key)' is measured; remove it first from the `metrics` of \(list)")
        }
        metrics.remove(key)
    }

    /// Returns the keys of the experiments and holdouts that measure a metric.
    package func users(ofMetric key: Identifier) -> [Identifier] {
        experiments(measuring: key) + holdouts.filter { $0.metrics.all.contains(key) }.map(\.key)
    }

    /// Returns the key of a concluded experiment that measures a metric; `nil` if there is none.
    fileprivate func concludedExperiment(measuring metric: Identifier) -> Identifier? {
        experiments.first { $0.conclusion != nil && $0.details.metrics.all.contains(metric) }?.key
    }

    /// Returns the key of an experiment that has started and measures a metric; `nil` if there is none.
    fileprivate func startedExperiment(measuring metric: Identifier) -> Identifier? {
        experiments.first {
            $0.hasStarted && !$0.isArchived && $0.details.metrics.all.contains(metric)
        }?.key
    }

    /// Returns the keys of the experiments that measure a metric.
    public func experiments(measuring metric: Identifier) -> [Identifier] {
        experiments.filter { $0.details.metrics.all.contains(metric) }.map(\.key)
    }
}
