public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// Applies a set of definitions to a project, as a whole or not at all.
///
/// A set is declarative: a member that an element lacks has its default, such as no audience. Only what may also change by
/// itself keeps its value: ids, `status`, `traffic`, `enrollment`, `variations`, and `enabled` of a flag.
public struct DefinitionSetEdit: Sendable {
    private let set: DefinitionSet
    private let prunes: Bool
    private let removalLimit: Int?
    private let author: Author
    private let time: Instant
    private let webhooks: WebhookView?

    public struct Outcome: Sendable {
        /// What the project has afterwards.
        public let definitions: DefinitionSet
        public let differences: [DefinitionDifference]
        /// The attributes, segments and webhooks to define.
        public let schema: SchemaChange
        /// The conditions that nobody meets.
        public let warnings: [DefinitionWarning]
        /// The experiments that the set names and that do not run.
        public let notRunning: [JSONFault]
    }

    /// - Parameters:
    ///   - prunes: whether what the set lacks is removed: experiments are archived; flags, holdouts, and metrics that nothing
    ///     measures are deleted, and the project's webhooks, if the set has a list of webhooks. Attributes, segments and the
    ///     webhooks of all projects stay, because all projects share them.
    ///   - removalLimit: how many elements are removed at most; `nil` for any number, but not for all.
    ///   - author: who concludes the experiments that are concluded.
    ///   - time: when that is.
    ///   - webhooks: `nil` if the caller may not see them: then what the set has of them is not looked at.
    public init(
        _ set: DefinitionSet, prunes: Bool, removalLimit: Int? = nil, by author: Author, at time: Instant,
        webhooks: WebhookView?
    ) {
        self.set = set
        self.prunes = prunes
        self.removalLimit = removalLimit
        self.author = author
        self.time = time
        self.webhooks = webhooks
    }

    /// An edit that puts a definition back as it was; see ``DefinitionState``.
    ///
    /// - Parameter definitions: the present ones, to which the edit is applied.
    public init(
        restoring state: DefinitionState, of kind: DefinitionSet.Kind, _ key: Identifier,
        in definitions: ProjectDefinitions, by author: Author, at time: Instant
    ) {
        let set = DefinitionSet(restoring: state, of: kind, key, in: definitions)
        self.init(set, prunes: false, by: author, at: time, webhooks: nil)
    }

    /// - Throws: 422 with everything that is wrong; 409 if everything that is wrong conflicts with what is stored.
    public func apply(
        to definitions: inout ProjectDefinitions, of project: Project?, _ schema: AttributeSchema
    ) throws(CoreError) -> Outcome {
        var run = DefinitionSetRun(definitions, of: project, schema, webhooks, conclusion: (author, time))
        run.apply(set)
        if prunes { run.removeAll(except: set, atMost: removalLimit) }
        run.divideGroups(set)
        try run.check()
        run.definitions.serveExperiments()
        definitions = run.definitions
        let after = DefinitionSet(
            definitions, run.schema, webhooks: run.webhooks,
            since: project.map { ($0.definitions, run.former) })
        var differences = after.differences(from: run.former)
        if after.project != run.former.project {
            differences.insert(
                DefinitionDifference(
                    kind: nil, key: Identifier(definitions.sdkKey), before: run.former.project ?? JSONObject(),
                    after: after.project ?? JSONObject()), at: 0)
        }
        return Outcome(
            definitions: after, differences: differences, schema: run.schemaChange,
            warnings: run.warnings, notRunning: run.notRunning)
    }

    /// Applies a set to an empty project, so that everything that it names must be in it.
    ///
    /// - Throws: 422 with everything that is wrong.
    public static func check(_ set: DefinitionSet) throws(CoreError) -> Outcome {
        var definitions = ProjectDefinitions(projectID: "check")
        let edit = DefinitionSetEdit(
            set, prunes: false, by: .processUser, at: .epoch, webhooks: WebhookView([], .ofFiles))
        let outcome = try edit.apply(to: &definitions, of: nil, .empty)
        definitions.generate(since: nil)
        _ = try Datafile.usable(definitions.datafile, similarTo: nil)
        return outcome
    }
}

extension DefinitionDifference {
    /// The entry in the audit log; `nil` for attributes, segments and webhooks, which the store records.
    public var note: AuditNote? {
        func note(_ put: AuditAction, _ delete: AuditAction) -> AuditNote {
            let detail = { (object: JSONObject?) -> JSONValue in
                object.map { JSONValue.object(JSONObject(.init(key: noun, value: .object($0)))) } ?? .null
            }
            return AuditNote(after == nil ? delete : put, of: key.string, before: detail(before), after: detail(after))
        }
        switch kind {
        case nil:
            return AuditNote(
                .projectPut, of: key.string, before: .object(before ?? JSONObject()),
                after: .object(after ?? JSONObject()))
        case .attributes, .segments, .groups, .webhooks: return nil
        case .metrics: return note(.metricPut, .metricDelete)
        case .holdouts: return note(.holdoutPut, .holdoutDelete)
        case .flags: return note(.flagPut, .flagDelete)
        case .experiments:
            switch after?["status"] == before?["status"] ? nil : after?["status"]?.string {
            case "archived": return note(.experimentArchive, .experimentArchive)
            case "concluded": return note(.experimentConclude, .experimentArchive)
            default: return note(.experimentPut, .experimentArchive)
            }
        }
    }
}
