public import Bucketing
public import Chronology
public import Definitions
public import JSON
public import Storage

/// Applies a set of definitions to a project, as a whole or not at all.
///
/// A set is declarative: a member that an element lacks gets its default, such as no audience. Only members that may
/// also change during the operation of an experiment keep their values: ids, `status`, `traffic`, `enrollment`,
/// `variations`, and `enabled` of a flag.
///
/// The work is done by a ``DefinitionSetRun``, which collects every error before the edit fails.
public struct DefinitionSetEdit: Sendable {
    private let set: DefinitionSet
    /// Whether elements that the set lacks are removed.
    private let prunes: Bool
    /// The maximum number of removed elements. If it is `nil`, an empty set may remove nothing, and any other set may
    /// remove any number.
    private let removalLimit: Int?
    private let author: Author
    private let time: Instant
    private let webhooks: WebhookView?

    /// The effects of an edit.
    public struct Outcome: Sendable {
        /// The definitions of the project after the edit.
        public let definitions: DefinitionSet
        /// The differences between the definitions before and after the edit.
        public let differences: [DefinitionDifference]
        /// The attributes, segments and webhooks to store.
        public let schema: SchemaChange
        /// The warnings about the definitions, such as conditions that nobody meets.
        public let warnings: [DefinitionWarning]
        /// The experiments that the set names, and that stay paused or concluded because no status is given.
        public let notRunning: [JSONFault]
    }

    /// - Parameters:
    ///   - prunes: whether to remove elements that the set lacks. Experiments are archived. Flags, holdouts, and
    ///     metrics that nothing measures are deleted. If the set has a list of webhooks, the project's webhooks are
    ///     deleted, too. Attributes, segments and the webhooks of all projects stay, because all projects share them.
    ///   - removalLimit: the maximum number of elements to remove. If it is `nil`, an empty set may remove nothing, and
    ///     any other set may remove any number.
    ///   - author: the author of conclusions that the set makes.
    ///   - time: the time of the edit.
    ///   - webhooks: `nil` if the caller may not see them. Then the webhooks of the set are ignored.
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

    /// Creates the edit that restores an element to a former state.
    ///
    /// - Parameter definitions: the current definitions, to which the edit will be applied.
    public init(
        restoring state: DefinitionState, of kind: DefinitionSet.Kind, _ key: Identifier,
        in definitions: ProjectDefinitions, by author: Author, at time: Instant
    ) {
        let set = DefinitionSet(restoring: state, of: kind, key, in: definitions)
        self.init(set, prunes: false, by: author, at: time, webhooks: nil)
    }

    /// Applies the set.
    ///
    /// - Throws: 422 with everything that is wrong; 409 if each of the errors is a conflict with stored definitions.
    public func apply(
        to definitions: inout ProjectDefinitions, of project: Project?, _ schema: AttributeSchema
    ) throws(CoreError) -> Outcome {
        var run = DefinitionSetRun(definitions, of: project, schema, webhooks, by: author, at: time)
        run.apply(set)
        if prunes { run.removeAll(except: set, atMost: removalLimit) }
        run.divideGroups(set)
        try run.check()
        run.definitions.serveExperiments()
        definitions = run.definitions
        let after = DefinitionSet(
            definitions, run.schema, webhooks: run.webhooks,
            since: project.map { ($0.definitions, run.former) })
        return Outcome(
            definitions: after, differences: Self.differences(from: run.former, to: after, of: definitions.sdkKey),
            schema: run.schemaChange, warnings: run.warnings, notRunning: run.notRunning)
    }

    /// Returns the differences between two sets: first that of the settings of the project, then those of elements.
    private static func differences(
        from former: DefinitionSet, to edited: DefinitionSet, of sdkKey: String
    ) -> [DefinitionDifference] {
        let ofElements = edited.differences(from: former)
        guard edited.project != former.project else { return ofElements }
        let ofSettings = DefinitionDifference(
            kind: nil, key: Identifier(sdkKey), before: former.project ?? JSONObject(),
            after: edited.project ?? JSONObject())
        return [ofSettings] + ofElements
    }

    /// Checks a set without a server, by applying it to an empty project. The set must have all elements that it refers
    /// to.
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
            func detail(_ object: JSONObject?) -> JSONValue {
                object.map { JSONValue.object(JSONObject(.init(key: noun, value: .object($0)))) } ?? .null
            }
            return AuditNote(after == nil ? delete : put, of: key.string, before: detail(before), after: detail(after))
        }
        switch kind {
        // The settings of the project.
        case nil:
            return AuditNote(
                .projectPut, of: key.string, before: .object(before ?? JSONObject()),
                after: .object(after ?? JSONObject()))
        case .attributes, .segments, .groups, .webhooks: return nil
        case .metrics: return note(.metricPut, .metricDelete)
        case .holdouts: return note(.holdoutPut, .holdoutDelete)
        case .flags: return note(.flagPut, .flagDelete)
        case .experiments:
            let newStatus = after?["status"] == before?["status"] ? nil : after?["status"]?.string
            switch newStatus {
            case "archived": return note(.experimentArchive, .experimentArchive)
            case "concluded": return note(.experimentConclude, .experimentArchive)
            default: return note(.experimentPut, .experimentArchive)
            }
        }
    }
}
