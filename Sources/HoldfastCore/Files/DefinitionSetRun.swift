import Bucketing
import Chronology
import Definitions
import JSON
import Storage

/// The state of an application, and everything that was wrong.
struct DefinitionSetRun {
    let project: Project?
    let former: DefinitionSet
    let shown: [DefinitionSet.Kind: [Identifier: JSONObject]]
    let conclusion: (author: Author, time: Instant)
    var definitions: ProjectDefinitions
    /// With what the set defines.
    private(set) var schema: AttributeSchema
    private(set) var schemaChange = SchemaChange()
    /// Those of this project and of all projects, as they are afterwards; `nil` if the caller may not see webhooks.
    private(set) var webhooks: [Webhook]?
    private let view: WebhookView?
    private(set) var warnings: [DefinitionWarning] = []
    /// What the set names and would not run, which stays as it is.
    var notRunning: [JSONFault] = []
    /// How many elements are removed.
    var removals = 0
    private var faults: [JSONFault] = []
    private var isConflict = true

    init(
        _ definitions: ProjectDefinitions, of project: Project?, _ schema: AttributeSchema, _ view: WebhookView?,
        conclusion: (author: Author, time: Instant)
    ) {
        self.project = project
        self.definitions = definitions
        self.schema = schema
        self.conclusion = conclusion
        self.view = view
        webhooks = view?.usable.filter { $0.concerns(definitions.sdkKey) }
        let former = DefinitionSet(project?.definitions, schema, webhooks: webhooks)
        self.former = former
        shown = Dictionary(uniqueKeysWithValues: DefinitionSet.Kind.allCases.map { ($0, former.objects($0)) })
        self.definitions.unallocatedGroups = []
    }

    // MARK: Errors

    mutating func attempt(
        at place: JSONPointer, _ work: (inout DefinitionSetRun) throws(CoreError) -> Void
    ) {
        do throws(CoreError) {
            try work(&self)
        } catch {
            if error.kind != .conflict { isConflict = false }
            let found =
                error.faults.isEmpty ? [JSONFault(pointer: error.pointer ?? [], reason: error.detail)] : error.faults
            faults += found.map { JSONFault(pointer: place.appending($0.pointer), reason: $0.reason) }
        }
    }

    func check() throws(CoreError) {
        let error = CoreError(isConflict ? .conflict : .unprocessable, faults: faults, "nothing was applied")
        if let error { throw error }
    }

    // MARK: Elements

    mutating func apply(_ set: DefinitionSet) {
        if let project = set.project {
            attempt(at: [DefinitionSet.projectMember]) { run throws(CoreError) in
                run.definitions.assignmentLifetime = try AssignmentLifetime.change(in: project) ?? nil
            }
        }
        for element in set[.attributes] {
            attempt(at: element.place) { run throws(CoreError) in try run.define(attribute: element) }
        }
        schema = schema.with(attributes: schemaChange.attributes)
        for element in set[.segments] {
            attempt(at: element.place) { run throws(CoreError) in try run.define(segment: element) }
        }
        schema = schema.with(segments: schemaChange.segments)
        for element in set[.metrics] { apply(MetricDefinition.self, element, .metrics) }
        rename(set[.experiments])
        // What says nothing of variations is about a rule, which its flag makes.
        let rules = Set(set[.experiments].filter { isRule($0) }.map(\.key))
        for element in set[.experiments] where !rules.contains(element.key) {
            apply(experiment: element, isRule: false)
        }
        definitions.serveExperiments()
        for element in set[.flags] { apply(Flag.self, element, .flags) }
        for element in set[.experiments] where rules.contains(element.key) { apply(experiment: element, isRule: true) }
        for element in set[.holdouts] { apply(Holdout.self, element, .holdouts) }
        guard let view else { return }
        for element in set[.webhooks] {
            attempt(at: element.place) { run throws(CoreError) in try run.define(webhook: element, view) }
        }
    }

    private mutating func define(webhook element: DefinitionSet.Element, _ view: WebhookView) throws(CoreError) {
        let (key, sdkKey) = (element.key.string, definitions.sdkKey)
        try WebhookRules.check(key: key)
        let former = view.all.first { $0.key == key }
        if let other = former?.sdkKey, other != sdkKey {
            throw CoreError(
                .conflict, "the webhook '\(key)' must be of this project or of all; it is of the project '\(other)'")
        }
        if let former { try view.rules.check(former) }
        let made = schemaChange.webhooks.count { $0.former == nil }
        guard former != nil || view.all.count + made < Webhook.limit else {
            throw CoreError(webhooks: view.all.count + made)
        }
        var body = changes(element.object, .webhooks, element.key)
        // A token that is bound to a project would make it a webhook of that.
        if former == nil, body["sdk_key"] == nil { body["sdk_key"] = .null }
        let definition = try view.rules.definition(.object(body), key: key, replacing: former?.definition)
        // Files that are checked without a server are of no project yet.
        guard definition.sdkKey.map({ sdkKey.isEmpty || $0 == sdkKey }) ?? true else {
            throw CoreError(
                .unprocessable,
                "`sdk_key` must be that of the project, '\(sdkKey)', or be left out for a webhook of all projects; got "
                    + "'\(definition.sdkKey ?? "")'", at: ["sdk_key"])
        }
        guard definition != former?.definition else { return }
        change(webhook: WebhookChange(key, definition, replacing: former?.definition))
    }

    /// Deletes the webhooks of this project that a set lacks.
    mutating func removeWebhooks(except kept: Set<Identifier>) {
        for webhook in webhooks ?? []
        where webhook.sdkKey == definitions.sdkKey && !kept.contains(Identifier(webhook.key)) {
            removals += 1
            change(webhook: WebhookChange(webhook.key, nil, replacing: webhook.definition))
        }
    }

    private mutating func change(webhook change: WebhookChange) {
        schemaChange.webhooks.append(change)
        var all = webhooks ?? []
        all.removeAll { $0.key == change.key }
        if let definition = change.definition { all.append(Webhook(key: change.key, definition)) }
        webhooks = all.sorted { $0.key < $1.key }
    }

    private mutating func define(attribute element: DefinitionSet.Element) throws(CoreError) {
        let definition = try AttributeDefinition(.object(element.object), name: try Self.name(element))
        try schema.checkRoom(forAttribute: element.key)
        switch AttributeRules.define(definition, replacing: schema.attribute(element.key)) {
        case .created, .changed: schemaChange.attributes.append(definition)
        case .unchanged: break
        case .otherType(let stored): throw CoreError(otherTypeOf: stored)
        }
    }

    private mutating func define(segment element: DefinitionSet.Element) throws(CoreError) {
        let stored = schema.segments[element.key]
        if let stored, let given = element.object["conditions"],
            DefinitionChanges.areSame(given, stored.conditions),
            element.object.allSatisfy({ ["name", "conditions"].contains($0.key) })
        {
            return
        }
        let segment = try Segment(.object(element.object), name: try Self.name(element), schema: schema)
        try schema.checkRoom(forSegment: element.key)
        schemaChange.segments.append(segment)
    }

    /// - Throws: 422 for a control character, which no path has.
    private static func name(_ element: DefinitionSet.Element) throws(CoreError) -> Identifier {
        guard element.key.string.utf8.allSatisfy({ $0 >= 0x20 }) else {
            throw CoreError(.unprocessable, "a name must have no control characters; got one", at: ["name"])
        }
        return element.key
    }

    private mutating func apply<Defined: DefinedElement>(
        _: Defined.Type, _ element: DefinitionSet.Element, _ kind: DefinitionSet.Kind
    ) {
        attempt(at: element.place) { run throws(CoreError) in
            try run.change(Defined.self, element.key, run.changes(element.object, kind, element.key), at: element.place)
        }
    }

    mutating func change<Defined: DefinedElement>(
        _: Defined.Type, _ key: Identifier, _ body: JSONObject, at place: JSONPointer
    ) throws(CoreError) {
        guard !body.isEmpty else { return }
        let description = project.flatMap {
            Defined.description(of: key.string, in: $0.compiled, sdkKey: $0.sdkKey)
        }
        guard let change = try Defined.change(.object(body), key: key.string, of: description, schema) else { return }
        _ = try change.apply(to: &definitions)
        let found = change.warnings(schema, project?.datafile, changing: description, at: conclusion.time)
        warnings += found.map { warning in
            var warning = warning
            warning.fault.pointer = place.appending(warning.fault.pointer)
            return warning
        }
    }

    /// Returns the members that differ from those that are shown, with the defaults of those that are left out.
    func changes(_ object: JSONObject, _ kind: DefinitionSet.Kind, _ key: Identifier) -> JSONObject {
        let object = kind == .flags ? withGroups(object) : object
        guard let shown = shown[kind]?[key] else { return object }
        var body = object
        if kind == .experiments, Self.areSameVariations(body["variations"], shown["variations"]) {
            body["variations"] = shown["variations"]
        }
        // Another kind has other members.
        if kind != .metrics || object["kind"] == nil || object["kind"] == shown["kind"] {
            for member in shown where body[member.key] == nil {
                if let value = kind.defaults[member.key] { body[member.key] = value }
            }
        }
        if kind == .experiments, var plan = body["plan"]?.object {
            for name in DecisionRule.members.names where plan[name] == nil { plan[name] = .null }
            body["plan"] = .object(plan)
        }
        return DefinitionChanges(of: .object(shown)).members(of: .object(body)).object ?? body
    }

    /// Whether variations of a file, which may be keys without ids and weights, are those that are shown.
    private static func areSameVariations(_ given: JSONValue?, _ shown: JSONValue?) -> Bool {
        guard let given = given?.array, let shown = shown?.array?.compactMap(\.object), given.count == shown.count
        else { return false }
        let isWeighted = given.map { $0.object?["weight"] != nil }
        let weights = Set(shown.compactMap { $0["weight"]?.double })
        // Either all have a weight or none.
        return Set(isWeighted).count == 1
            && zip(given, shown).allSatisfy { given, shown in
                let object = given.object ?? JSONObject(.init(key: "key", value: given))
                // Without weights the variations get equal shares. Those of a bandit are not shown.
                let hasSameWeight =
                    object["weight"].map { $0.double == shown["weight"]?.double } ?? (weights.count <= 1)
                return object["key"] == shown["key"] && hasSameWeight && object["id"].map { $0 == shown["id"] } ?? true
                    && object.allSatisfy { ["key", "id", "weight"].contains($0.key) }
            }
    }

    /// Returns a flag whose rules leave the groups that they do not name, and restore the experiments that they name.
    private func withGroups(_ flag: JSONObject) -> JSONObject {
        guard let rules = flag["rules"]?.array else { return flag }
        var flag = flag
        flag["rules"] = .array(
            rules.map { rule in
                guard var object = rule.object, var experiment = object["experiment"]?.object,
                    let known = object.identifier("key").flatMap({ definitions.experiments[$0] })
                else { return rule }
                if experiment["group"] == nil, definitions.group(of: known) != nil { experiment["group"] = .null }
                if experiment["status"] == nil { experiment["status"] = known.restoredStatus }
                object["experiment"] = .object(experiment)
                return .object(object)
            })
        return flag
    }
}

extension DefinitionSet.Kind {
    /// What a member is that a file leaves out. Members that may also change by themselves keep their values.
    fileprivate var defaults: [String: JSONValue] {
        switch self {
        case .attributes, .segments, .groups: [:]
        case .metrics: MetricDefinition.members.defaults
        case .experiments: ExperimentView.members.defaults
        case .flags: FlagView.members.defaults
        case .holdouts: HoldoutDefinition.members.defaults
        case .webhooks: Webhook.Definition.members.defaults
        }
    }
}
