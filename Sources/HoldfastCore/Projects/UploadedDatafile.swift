import Bucketing
import Definitions
public import Storage

/// A datafile that an admin uploads, with the results that are kept when it is stored: those of the experiments that it
/// concludes, as `POST /v1/experiments/{key}/conclude` keeps them.
public struct UploadedDatafile: Sendable {
    /// As it was uploaded, except that a new conclusion without a time of its results gets the present one.
    public let content: [UInt8]
    public let freezes: [ResultsFreeze]

    /// - Parameters:
    ///   - definitions: those of the content.
    ///   - former: the project that it replaces. The freezes hold only for this version of it.
    public init(
        _ content: [UInt8], _ definitions: ProjectDefinitions, replacing former: Project?, at now: Timestamp,
        _ session: any StoreSession
    ) async throws(StorageError) {
        guard definitions.experiments.contains(where: { $0.conclusion != nil }) else {
            (self.content, freezes) = (content, [])
            return
        }
        let formerDefinitions = former?.definitions
        var times: [Identifier: Timestamp] = [:]
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
            // A time that was uploaded may be one of this database, whose results stay as they are, or of another one
            // whose users are yet to come.
            var isFrozen = times[freeze.experimentID] != nil
            if !isFrozen { isFrozen = try await Self.isFrozenNow(freeze, session) }
            if isFrozen { freezes.append(freeze) }
        }
        self.freezes = freezes
    }

    /// Whether there are users, and no results of the same time.
    private static func isFrozenNow(
        _ freeze: ResultsFreeze, _ session: any StoreSession
    ) async throws(StorageError) -> Bool {
        let users = try await session.read(.users(experimentID: freeze.experimentID))
        guard users.variations.contains(where: { $0.users != UserCounts() }) else { return false }
        return try await session.read(
            .frozenResults(experimentID: freeze.experimentID, goal: "", frozenAt: freeze.frozenAt)) == nil
    }
}
