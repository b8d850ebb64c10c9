import Bucketing
public import Chronology
public import Definitions
public import Storage

/// A datafile that an admin uploads, with the results to freeze when it is stored: those of the experiments that it
/// concludes, as for `POST /v1/experiments/{key}/conclude`.
public struct UploadedDatafile: Sendable {
    /// The uploaded content. A new conclusion without a time of its results has got the current time.
    public let content: [UInt8]
    public let freezes: [ResultsFreeze]

    /// - Parameters:
    ///   - definitions: the definitions in the content.
    ///   - former: the project that the datafile replaces. The freezes are valid only for this version of it.
    public init(
        _ content: [UInt8], _ definitions: ProjectDefinitions, replacing former: Project?, at now: Instant,
        _ session: any StoreSession
    ) async throws(StorageError) {
        guard definitions.experiments.contains(where: { $0.conclusion != nil }) else {
            (self.content, freezes) = (content, [])
            return
        }
        let formerDefinitions = former?.definitions
        var times: [Identifier: Instant] = [:]
        for experiment in definitions.experiments {
            guard let conclusion = experiment.conclusion, conclusion.frozenAt == nil else { continue }
            if let known = formerDefinitions?.experiments[experiment.key]?.conclusion {
                times[experiment.id] = known.frozenAt
            } else {
                times[experiment.id] = now
            }
        }
        let completed = times.isEmpty ? definitions : definitions.keepingResults(at: times)
        self.content = times.isEmpty ? content : completed.content
        var freezes: [ResultsFreeze] = []
        for freeze in completed.freezes(since: formerDefinitions) {
            // An uploaded time may come from this database, which has frozen results, or from another one whose users
            // may be imported later.
            var isFrozen = times[freeze.experimentID] != nil
            if !isFrozen { isFrozen = try await Self.isFrozenNow(freeze, session) }
            if isFrozen { freezes.append(freeze) }
        }
        self.freezes = freezes
    }

    /// Whether there are users, but no frozen results of the same time.
    private static func isFrozenNow(
        _ freeze: ResultsFreeze, _ session: any StoreSession
    ) async throws(StorageError) -> Bool {
        let users = try await session.read(.users(experimentID: freeze.experimentID))
        guard users.variations.contains(where: { $0.users != UserCounts() }) else { return false }
        return try await session.read(
            .frozenResults(experimentID: freeze.experimentID, goal: "", frozenAt: freeze.frozenAt)) == nil
    }
}
