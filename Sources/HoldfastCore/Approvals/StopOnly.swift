import Bucketing
import Definitions
import JSON

extension ProjectDefinitions {
    /// Whether these definitions differ from former ones only in what was stopped: experiments paused, enrollment
    /// closed, ramps ended, flags turned off.
    ///
    /// Makes just these changes to the former definitions, generates their datafile, and compares it with that of these
    /// definitions. So no member can be forgotten.
    func onlyStops(_ former: ProjectDefinitions) -> Bool {
        var stopped = former
        for experiment in experiments {
            guard let known = former.experiments[experiment.key] else { return false }
            let expected = known.stopped(as: experiment)
            if expected != known { stopped.experiments.set(expected) }
        }
        for flag in flags {
            guard var known = former.flags[flag.key] else { return false }
            guard known.isEnabled, !flag.isEnabled else { continue }
            known.isEnabled = false
            stopped.flags.set(known)
        }
        stopped.root["revision"] = root["revision"]
        stopped.generate(since: former)
        return stopped.withoutVersions == withoutVersions
    }

    /// The datafile without the versions of flags, because an uploaded datafile need not increase them.
    private var withoutVersions: JSONObject {
        var root = root
        root["featureFlags"] = (root["featureFlags"]?.array).map { flags in
            .array(
                flags.map { element in
                    guard var flag = element.object, var own = flag[Annotations.member]?.object else { return element }
                    own["version"] = nil
                    flag[Annotations.member] = .object(own)
                    return .object(flag)
                })
        }
        return root
    }
}

extension ExperimentDefinition {
    /// Returns the experiment with only those changes of another state of it that stop it: the status paused, closed
    /// enrollment, an ended ramp.
    fileprivate func stopped(as other: ExperimentDefinition) -> ExperimentDefinition {
        var stopped = self
        let running = ExperimentStatus.running.rawValue
        if !isDraft, status == running, other.status == ExperimentStatus.paused.rawValue {
            stopped.status = other.status
        }
        stopped.isClosed = isClosed || other.isClosed
        if let state = other.details.ramp?.state, state.status == .ended, let ramp = details.ramp,
            ramp.isPending || ramp.state.status == .held
        {
            stopped.details.ramp?.state = state
        }
        return stopped
    }
}
