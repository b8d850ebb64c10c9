import Bucketing
import Definitions
import JSON
import Storage

/// The removal of elements that a set lacks.
extension DefinitionSetRun {
    /// Removes the elements that the set lacks. Experiments are archived. Metrics that something measures stay, and so
    /// do elements that come from an uploaded datafile, which a set never has.
    ///
    /// - Parameter limit: the maximum number of removals; `nil` for any number. An empty set is probably a mistake,
    ///   such as a wrong directory, so it may remove elements only with a limit.
    mutating func removeAll(except set: DefinitionSet, atMost limit: Int?) {
        func lacking(_ kind: DefinitionSet.Kind) -> [Identifier] {
            let kept = Set(set[kind].map(\.key))
            return former[kind].map(\.key).filter { !kept.contains($0) }
        }
        for key in lacking(.holdouts) { remove(Holdout.self, key) }
        // A flag without rules is defined by its experiment or by an uploaded datafile.
        for key in lacking(.flags) where definitions.flags[key]?.rules != nil { remove(Flag.self, key) }
        for key in lacking(.experiments) {
            guard let experiment = definitions.experiments[key], !experiment.isArchived, experiment.flagKey == nil
            else {
                continue
            }
            remove(Experiment.self, key)
        }
        for key in lacking(.metrics) where definitions.users(ofMetric: key).isEmpty {
            remove(MetricDefinition.self, key)
        }
        if set.saysWebhooks { removeWebhooks(except: Set(set[.webhooks].map(\.key))) }
        let isEmpty = DefinitionSet.Kind.allCases.allSatisfy { set[$0].isEmpty }
        attempt(at: []) { run throws(CoreError) in
            if isEmpty, limit == nil, run.removals > 0 {
                throw CoreError(
                    .unprocessable,
                    "to remove everything, `max_removals` is required, the greatest number of removals; the set is empty, "
                        + "and would remove \(run.removals)", at: [])
            }
            guard let limit, run.removals > limit else { return }
            throw CoreError(
                .unprocessable,
                "`max_removals` must be at least \(run.removals), because so many would be removed; got \(limit)",
                at: [])
        }
    }

    /// Removes or archives one element.
    private mutating func remove<Defined: DefinedElement>(_: Defined.Type, _ key: Identifier) {
        removals += 1
        attempt(at: []) { run throws(CoreError) in try Defined.remove(key, from: &run.definitions) }
    }

    /// Deletes the webhooks of this project that a set lacks.
    private mutating func removeWebhooks(except kept: Set<Identifier>) {
        for webhook in webhooks ?? []
        where webhook.sdkKey == definitions.sdkKey && !kept.contains(Identifier(webhook.key)) {
            removals += 1
            change(webhook: WebhookChange(webhook.key, nil, replacing: webhook.definition))
        }
    }
}
