public import Bucketing
public import Definitions
import JSON
public import Storage

/// A datafile that an admin uploads, with the results that are kept when it is stored: those of the experiments that it
/// concludes, as `POST /v1/experiments/{key}/conclude` keeps them.
public struct UploadedDatafile: Sendable {
    /// As it was uploaded, except that a new conclusion without a time of its results gets the present one.
    public let content: [UInt8]
    public let freezes: [ResultsFreeze]

    /// - Parameters:
    ///   - datafile: the content, compiled.
    ///   - former: the project that it replaces. The freezes hold only for this version of it.
    public init(
        _ content: [UInt8], _ datafile: Datafile, replacing former: Project?, at now: Timestamp,
        _ session: any StoreSession
    ) async throws(StorageError) {
        let definitions = ProjectDefinitions(datafile.source)
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
        let completed = times.isEmpty ? datafile.source : .object(Self.setting(times, in: definitions.root))
        self.content = times.isEmpty ? content : completed.encoded()
        var freezes: [ResultsFreeze] = []
        for freeze in ProjectDefinitions(completed).freezes(since: formerDefinitions) {
            // A time that was uploaded may be one of this database, whose results stay as they are, or of another one
            // whose users are yet to come.
            var isFrozen = times[freeze.experimentID] != nil
            if !isFrozen { isFrozen = try await Self.isFrozenNow(freeze, session) }
            if isFrozen { freezes.append(freeze) }
        }
        self.freezes = freezes
    }

    /// Returns a datafile with how long assignments of the project last: uploads from elsewhere do not say it.
    ///
    /// - Returns: `nil` if the datafile says it, or the project has nothing to say.
    public static func completed(_ datafile: Datafile, like project: Project?) throws(CoreError) -> Datafile? {
        try completed(datafile, with: project?.datafile.assignmentLifetime)
    }

    static func completed(
        _ datafile: Datafile, with lifetime: AssignmentLifetime?
    ) throws(CoreError) -> Datafile? {
        guard let lifetime, datafile.assignmentLifetime == nil, var root = datafile.source.object else { return nil }
        var members = root[Annotations.member]?.object ?? JSONObject()
        members[AssignmentLifetime.member] = .string(lifetime.text)
        root[Annotations.member] = .object(members)
        return try Project.compile(.object(root), similarTo: datafile)
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

    /// Returns a datafile whose conclusions have the times of their results.
    private static func setting(_ times: [Identifier: Timestamp], in root: JSONObject) -> JSONObject {
        func completed(_ owner: JSONObject) -> JSONObject {
            guard let experiments = owner["experiments"]?.array else { return owner }
            var owner = owner
            owner["experiments"] = .array(
                experiments.map { element in
                    guard var experiment = element.object, let id = experiment.identifier("id"), let time = times[id],
                        var members = experiment[Annotations.member]?.object,
                        var conclusion = members["conclusion"]?.object
                    else { return element }
                    conclusion["frozenAt"] = .integer(time)
                    members["conclusion"] = .object(conclusion)
                    experiment[Annotations.member] = .object(members)
                    return .object(experiment)
                })
            return owner
        }
        var root = completed(root)
        if let groups = root["groups"]?.array {
            root["groups"] = .array(groups.map { group in group.object.map { .object(completed($0)) } ?? group })
        }
        return root
    }
}
