import Bucketing
public import Chronology
public import Definitions
public import Storage

/// A datafile that an admin uploads, and the results to freeze when it is stored.
///
/// An upload may conclude experiments. Their results are then frozen, as `POST /v1/experiments/{key}/conclude` would
/// do.
public struct UploadedDatafile: Sendable {
    /// The uploaded content. Each conclusion that lacks the time at which the results were frozen has been given one.
    public let content: [UInt8]
    /// The experiments whose results are to be frozen when the datafile is stored.
    public let freezes: [ResultsFreeze]

    /// Determines the times of new conclusions, and the results to freeze.
    ///
    /// - Parameters:
    ///   - definitions: the definitions in the content.
    ///   - former: the project whose datafile is replaced; `nil` for a new project. The freezes are valid only as long
    ///     as this is the active version.
    ///   - now: the time of conclusions that the upload adds.
    public init(
        _ content: [UInt8], _ definitions: ProjectDefinitions, replacing former: Project?, at now: Instant,
        _ session: any StoreSession
    ) async throws(StorageError) {
        guard definitions.experiments.contains(where: { $0.conclusion != nil }) else {
            (self.content, freezes) = (content, [])
            return
        }
        let formerDefinitions = former?.definitions
        let times = Self.missingTimes(in: definitions, since: formerDefinitions, at: now)
        let completed = times.isEmpty ? definitions : definitions.keepingResults(at: times)
        self.content = times.isEmpty ? content : completed.content
        var freezes: [ResultsFreeze] = []
        for freeze in completed.freezes(since: formerDefinitions) {
            var isNeeded = times[freeze.experimentID] != nil
            // The upload has a time of its own. It may come from this database, which has frozen the results already,
            // or from another one whose users may be imported later.
            if !isNeeded { isNeeded = try await Self.lacksFrozenResults(freeze, session) }
            if isNeeded { freezes.append(freeze) }
        }
        self.freezes = freezes
    }

    /// Returns the times for the conclusions that have none, by experiment id: the time that the former conclusion of
    /// the experiment has, or the current time if the experiment was not concluded before.
    private static func missingTimes(
        in definitions: ProjectDefinitions, since former: ProjectDefinitions?, at now: Instant
    ) -> [Identifier: Instant] {
        var times: [Identifier: Instant] = [:]
        for experiment in definitions.experiments {
            guard let conclusion = experiment.conclusion, conclusion.frozenAt == nil else { continue }
            if let formerConclusion = former?.experiments[experiment.key]?.conclusion {
                times[experiment.id] = formerConclusion.frozenAt
            } else {
                times[experiment.id] = now
            }
        }
        return times
    }

    /// Whether an experiment has users, but no frozen results of the time in the upload.
    private static func lacksFrozenResults(
        _ freeze: ResultsFreeze, _ session: any StoreSession
    ) async throws(StorageError) -> Bool {
        let users = try await session.read(.users(experimentID: freeze.experimentID))
        guard users.variations.contains(where: { $0.users != UserCounts() }) else { return false }
        return try await session.read(
            .frozenResults(experimentID: freeze.experimentID, goal: "", frozenAt: freeze.frozenAt)) == nil
    }
}
