import Bucketing
import Chronology
import Definitions
import JSON
import Storage

/// Applies a ``DefinitionSet`` to the definitions of a project, step by step, and collects all errors.
///
/// ``DefinitionSetEdit`` makes the steps: ``apply(_:)`` creates and changes elements, ``removeAll(except:atMost:)``
/// removes others, ``divideGroups(_:)`` divides the traffic of groups, and ``check()`` throws if anything was wrong.
/// Then ``definitions`` and ``schemaChange`` are to be stored.
struct DefinitionSetRun {
    /// The project before the edit; `nil` for a new one.
    let project: Project?
    /// The set that describes the project before the edit.
    let former: DefinitionSet
    /// The elements of ``former`` by their keys.
    let shown: [DefinitionSet.Kind: [Identifier: JSONObject]]
    /// The author of conclusions.
    let author: Author
    /// The time of the edit.
    let time: Instant
    /// The definitions, as far as the set has been applied.
    var definitions: ProjectDefinitions
    /// The attributes and segments, with those that the set defines.
    private(set) var schema: AttributeSchema
    /// The attributes, segments and webhooks to store.
    var schemaChange = SchemaChange()
    /// The webhooks of this project and of all projects, as the set leaves them; `nil` if the caller may not see
    /// webhooks.
    var webhooks: [Webhook]?
    /// All webhooks of the server, and which of them the caller may use; `nil` if the caller may not see webhooks.
    private let view: WebhookView?
    private(set) var warnings: [DefinitionWarning] = []
    /// The experiments that the set names without a status, and that stay paused or concluded.
    var notRunning: [JSONFault] = []
    /// The number of removed elements.
    var removals = 0
    private var faults: [JSONFault] = []
    /// Whether all errors so far are conflicts with stored definitions.
    private var isConflict = true

    init(
        _ definitions: ProjectDefinitions, of project: Project?, _ schema: AttributeSchema, _ view: WebhookView?,
        by author: Author, at time: Instant
    ) {
        self.project = project
        self.definitions = definitions
        self.schema = schema
        self.author = author
        self.time = time
        self.view = view
        webhooks = view?.usable.filter { $0.concerns(definitions.sdkKey) }
        let former = DefinitionSet(project?.definitions, schema, webhooks: webhooks)
        self.former = former
        shown = Dictionary(uniqueKeysWithValues: DefinitionSet.Kind.allCases.map { ($0, former.objects($0)) })
        // Groups are divided once all of their experiments have changed.
        self.definitions.unallocatedGroups = []
    }

    // MARK: Errors

    /// Does a part of the work. Collects an error, so that the other parts are still tried.
    ///
    /// - Parameter place: the location of the element in the input. Pointers of errors are relative to it.
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

    /// - Throws: 422 with all errors, if there are any; 409 if all of them are conflicts.
    func check() throws(CoreError) {
        let error = CoreError(isConflict ? .conflict : .unprocessable, faults: faults, "nothing was applied")
        if let error { throw error }
    }

    // MARK: Elements

    /// Creates and changes the elements of a set. Each kind comes after those that its elements name.
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
        // Flags create the experiments of their rules, so the elements about these come after flags.
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

    /// Applies an element as a `PUT` would do.
    private mutating func apply<Defined: DefinedElement>(
        _: Defined.Type, _ element: DefinitionSet.Element, _ kind: DefinitionSet.Kind
    ) {
        attempt(at: element.place) { run throws(CoreError) in
            try run.change(Defined.self, element.key, run.changes(element.object, kind, element.key), at: element.place)
        }
    }

    /// Changes an element as a `PUT` would do, and collects the warnings.
    ///
    /// - Parameters:
    ///   - body: the body of the `PUT`; nothing is done if it is empty.
    ///   - place: the location of the element in the input.
    mutating func change<Defined: DefinedElement>(
        _: Defined.Type, _ key: Identifier, _ body: JSONObject, at place: JSONPointer
    ) throws(CoreError) {
        guard !body.isEmpty else { return }
        let description = project.flatMap {
            Defined.description(of: key.string, in: $0.compiled, sdkKey: $0.sdkKey)
        }
        guard let change = try Defined.change(.object(body), key: key.string, of: description, schema) else { return }
        _ = try change.apply(to: &definitions)
        let found = change.warnings(schema, project?.datafile, changing: description, at: time)
        warnings += found.map { warning in
            var warning = warning
            warning.fault.pointer = place.appending(warning.fault.pointer)
            return warning
        }
    }
}
