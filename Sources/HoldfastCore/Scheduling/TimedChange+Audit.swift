import Bucketing
import Definitions
import JSON
import Storage

extension TimedChange {
    /// The action in the audit log.
    var action: AuditAction {
        switch self {
        case .start, .end: .experimentSchedule
        case .begin, .complete, .wait, .alarm, .hold: .experimentRamp
        case .weigh: .experimentBandit
        }
    }

    /// Whether the change begins a step of a ramp.
    var isStep: Bool {
        if case .begin = self { true } else { false }
    }
}

extension ExperimentDefinition {
    /// The members that a schedule, a ramp or a bandit changes, for the audit log.
    var timesForAudit: JSONValue {
        [
            "experiment": [
                "key": JSONValue(key), "status": .string(ExperimentStatus.name(of: status)),
                "traffic": .shortest(enrolledTraffic), "enrollment": .string(enrollment.rawValue),
                "schedule": details.schedule?.json ?? .null,
                "variations": .array(
                    variations.map { variation in
                        let weight = variation.weight.map { JSONValue.shortest($0) } ?? .null
                        return ["key": JSONValue(variation.key), "weight": weight]
                    }),
                "bandit": ["state": details.bandit?.description(of: self).object?["state"] ?? .null],
                "ramp": ["state": details.ramp?.json.object?["state"] ?? .null],
            ]
        ]
    }
}
