public import Bucketing
import Chronology
import Definitions
public import JSON
public import Storage

/// The last looks of a project's bandits that changed no weights.
///
/// A look is one evaluation of a bandit's users. A look that changes weights is part of the definitions. Any other look
/// is stored outside of the definitions, because each change of the definitions is a new revision, which all processes
/// and clients must load. ``describe(_:_:)`` shows the later of the two looks.
///
/// ``BanditLookRecorder`` stores the looks.
public struct BanditLooks: Sendable {
    /// The bandits and their last looks, by the id of the experiment.
    private let bandits: [Identifier: Bandit]
    private var looks: [Identifier: StoredLook] = [:]

    /// Reads the looks of a project. A project without a bandit needs no read.
    public init(_ project: Project, _ session: any StoreSession) async throws(StorageError) {
        self.init(project)
        if !bandits.isEmpty { add(try await session.read(.looks(sdkKey: project.sdkKey))) }
    }

    init(_ project: Project, _ stored: [StoredLook] = []) {
        bandits = project.definitions.bandits
        add(stored)
    }

    private mutating func add(_ stored: [StoredLook]) {
        for look in stored { looks[look.experimentID] = look }
    }

    /// Returns an experiment's description with the last look of its bandit.
    public func describe(_ experiment: Experiment, _ description: JSONValue) -> JSONValue {
        guard let bandit = bandits[experiment.id], let look = looks[experiment.id] else { return description }
        return bandit.describe(look, of: experiment, description)
    }
}

extension ProjectDefinitions {
    /// The bandits of all experiments, by the id of the experiment.
    fileprivate var bandits: [Identifier: Bandit] {
        var bandits: [Identifier: Bandit] = [:]
        for experiment in experiments.notable {
            if let bandit = experiment.details.bandit { bandits[experiment.id] = bandit }
        }
        return bandits
    }
}

extension Bandit {
    /// Returns the bandit with a look that is stored outside of the definitions, if that look is later than the look
    /// in the definitions.
    func with(_ stored: StoredLook?) -> Bandit {
        guard let stored, stored.lookedAt > state.lookedAt ?? .distantPast, let object = stored.content.object else {
            return self
        }
        var bandit = self
        bandit.note(Look(object), at: stored.lookedAt)
        return bandit
    }

    /// Returns the experiment's description with a look that is stored outside of the definitions.
    fileprivate func describe(_ look: StoredLook, of experiment: Experiment, _ description: JSONValue) -> JSONValue {
        guard var object = description.object, var shown = object["bandit"]?.object else { return description }
        shown["state"] = .object(with(look).shownState(experiment.variations.map { ($0.id, $0.key) }))
        object["bandit"] = .object(shown)
        return .object(object)
    }
}
