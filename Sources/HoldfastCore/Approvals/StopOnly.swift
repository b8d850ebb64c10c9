import Bucketing
import Definitions
import JSON

extension ProjectDefinitions {
    /// Whether an edit did nothing but stop something: it paused experiments, closed enrollment, ended ramps, or turned
    /// off flags. Such an edit needs no approval.
    ///
    /// The check applies only the stops to the former definitions, and compares the datafile that results with the
    /// edited one. If the edit changed anything else, in whatever member, the two datafiles differ.
    ///
    /// - Parameter former: the definitions before the edit.
    func onlyStops(_ former: ProjectDefinitions) -> Bool {
        var expected = former
        for experiment in experiments {
            guard let formerExperiment = former.experiments[experiment.key] else { return false }
            let stopped = formerExperiment.stopped(like: experiment)
            if stopped != formerExperiment { expected.experiments.set(stopped) }
        }
        for flag in flags {
            guard var stopped = former.flags[flag.key] else { return false }
            guard stopped.isEnabled, !flag.isEnabled else { continue }
            stopped.isEnabled = false
            expected.flags.set(stopped)
        }
        expected.root["revision"] = root["revision"]
        expected.generate(since: former)
        return expected.rootWithoutVersions == rootWithoutVersions
    }

    /// The datafile without the versions of flags. An edit increases them, but an uploaded datafile need not.
    private var rootWithoutVersions: JSONObject {
        var root = root
        root["featureFlags"] = (root["featureFlags"]?.array).map { flags in
            .array(
                flags.map { element in
                    guard var flag = element.object, var annotations = flag[Annotations.member]?.object else {
                        return element
                    }
                    annotations["version"] = nil
                    flag[Annotations.member] = .object(annotations)
                    return .object(flag)
                })
        }
        return root
    }
}

extension ExperimentDefinition {
    /// Returns the experiment with the stops of its edited state, and without any other change.
    ///
    /// - Parameter edited: the experiment after the edit.
    fileprivate func stopped(like edited: ExperimentDefinition) -> ExperimentDefinition {
        var stopped = self
        let isRunning = status == ExperimentStatus.running.rawValue
        if isRunning, edited.status == ExperimentStatus.paused.rawValue { stopped.status = edited.status }
        stopped.isClosed = isClosed || edited.isClosed
        // Only a ramp that goes on or is held can be ended.
        let canEndRamp = details.ramp.map { $0.isPending || $0.state.status == .held } ?? false
        if canEndRamp, let state = edited.details.ramp?.state, state.status == .ended {
            stopped.details.ramp?.state = state
        }
        return stopped
    }
}
