import Bucketing
public import JSON
public import Storage

/// Applies a set of definitions to a project, as a whole or not at all.
///
/// A set is declarative: a member that an element lacks has its default, such as no audience. Only what may also change by
/// itself keeps its value: ids, `status`, `traffic`, `enrollment`, `variations`, and `enabled` of a flag.
public struct DefinitionSetEdit: Sendable {
    private let set: DefinitionSet
    private let prunes: Bool
    private let author: Author
    private let time: Timestamp

    public struct Outcome: Sendable {
        /// What the project has afterwards.
        public let definitions: DefinitionSet
        public let differences: [DefinitionDifference]
        /// The attributes and segments to define.
        public let schema: SchemaChange
        /// The conditions that nobody meets.
        public let warnings: [JSONFault]
    }

    /// - Parameters:
    ///   - prunes: whether what the set lacks is removed: experiments are archived; flags, holdouts, and metrics that nothing
    ///     measures are deleted. Attributes and segments stay, because all projects share them.
    ///   - author: who concludes the experiments that are concluded.
    ///   - time: when that is.
    public init(_ set: DefinitionSet, prunes: Bool, by author: Author, at time: Timestamp) {
        self.set = set
        self.prunes = prunes
        self.author = author
        self.time = time
    }

    /// - Throws: 422 with everything that is wrong; 409 if everything that is wrong conflicts with what is stored.
    public func apply(
        to definitions: inout ProjectDefinitions, of project: Project?, _ schema: AttributeSchema
    ) throws(CoreError) -> Outcome {
        var run = DefinitionSetRun(definitions, of: project, schema, conclusion: (author, time))
        run.apply(set)
        if prunes { run.removeAll(except: set) }
        run.divideGroups(set)
        try run.check()
        run.definitions.serveExperiments()
        definitions = run.definitions
        let after = DefinitionSet(definitions, run.schema)
        return Outcome(
            definitions: after, differences: after.differences(from: run.former), schema: run.schemaChange,
            warnings: run.warnings)
    }

    /// Applies a set to an empty project, so that everything that it names must be in it.
    ///
    /// - Throws: 422 with everything that is wrong.
    public static func check(_ set: DefinitionSet) throws(CoreError) -> Outcome {
        var definitions = ProjectDefinitions(projectID: "check")
        let edit = DefinitionSetEdit(set, prunes: false, by: .processUser, at: 0)
        let outcome = try edit.apply(to: &definitions, of: nil, .empty)
        definitions.generate(since: nil)
        _ = try Project.compile(definitions.datafile, similarTo: nil)
        return outcome
    }
}

extension DefinitionDifference {
    /// The entry in the audit log; `nil` for attributes and segments, which the store records.
    public var note: AuditNote? {
        func note(_ put: AuditAction, _ delete: AuditAction) -> AuditNote {
            let detail = { (object: JSONObject?) -> JSONValue in
                object.map { JSONValue.object(JSONObject(.init(key: kind.noun, value: .object($0)))) } ?? .null
            }
            return AuditNote(after == nil ? delete : put, of: key.string, before: detail(before), after: detail(after))
        }
        switch kind {
        case .attributes, .segments, .groups: return nil
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

/// The state of an application, and everything that was wrong.
private struct DefinitionSetRun {
    private let project: Project?
    let former: DefinitionSet
    private let shown: [DefinitionSet.Kind: [Identifier: JSONObject]]
    private let conclusion: (author: Author, time: Timestamp)
    var definitions: ProjectDefinitions
    /// With what the set defines.
    private(set) var schema: AttributeSchema
    private(set) var schemaChange = SchemaChange()
    private(set) var warnings: [JSONFault] = []
    private var faults: [JSONFault] = []
    private var isConflict = true

    init(
        _ definitions: ProjectDefinitions, of project: Project?, _ schema: AttributeSchema,
        conclusion: (author: Author, time: Timestamp)
    ) {
        self.project = project
        self.definitions = definitions
        self.schema = schema
        self.conclusion = conclusion
        let former = DefinitionSet(project?.definitions, schema)
        self.former = former
        shown = Dictionary(uniqueKeysWithValues: DefinitionSet.Kind.allCases.map { ($0, former.objects($0)) })
        self.definitions.unallocatedGroups = []
    }

    // MARK: Errors

    private mutating func attempt(
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
        for element in set[.attributes] {
            attempt(at: element.place) { run throws(CoreError) in try run.define(attribute: element) }
        }
        schema = schema.with(attributes: schemaChange.attributes)
        for element in set[.segments] {
            attempt(at: element.place) { run throws(CoreError) in try run.define(segment: element) }
        }
        schema = schema.with(segments: schemaChange.segments)
        for element in set[.metrics] { apply(MetricDefinition.self, element, .metrics) }
        // What says nothing of variations is about a rule, which its flag makes.
        let rules = Set(set[.experiments].filter { isRule($0) }.map(\.key))
        for element in set[.experiments] where !rules.contains(element.key) {
            apply(experiment: element, isRule: false)
        }
        definitions.serveExperiments()
        for element in set[.flags] { apply(Flag.self, element, .flags) }
        for element in set[.experiments] where rules.contains(element.key) { apply(experiment: element, isRule: true) }
        for element in set[.holdouts] { apply(Holdout.self, element, .holdouts) }
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
        guard stored == nil || element.object["conditions"] != stored?.conditions else { return }
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

    private mutating func change<Defined: DefinedElement>(
        _: Defined.Type, _ key: Identifier, _ body: JSONObject, at place: JSONPointer
    ) throws(CoreError) {
        guard !body.isEmpty else { return }
        guard let change = try Defined.change(.object(body), key: key.string, in: project, schema) else { return }
        _ = try change.apply(to: &definitions)
        guard let datafile = project?.datafile else { return }
        warnings += change.warnings(schema, datafile).map {
            JSONFault(pointer: place.appending($0.pointer), reason: $0.reason)
        }
    }

    /// Returns the members that differ from those that are shown, with the defaults of those that are left out.
    private func changes(_ object: JSONObject, _ kind: DefinitionSet.Kind, _ key: Identifier) -> JSONObject {
        let object = kind == .flags ? withGroups(object) : object
        guard let shown = shown[kind]?[key] else { return object }
        var body = object
        // Another kind has other members.
        if kind != .metrics || object["kind"] == nil || object["kind"] == shown["kind"] {
            for member in shown where body[member.key] == nil {
                if let value = kind.defaults[member.key] { body[member.key] = value }
            }
        }
        return DefinitionChanges(of: .object(shown)).members(of: .object(body)).object ?? body
    }

    /// Returns a flag whose rules leave the groups that they do not name.
    private func withGroups(_ flag: JSONObject) -> JSONObject {
        guard let rules = flag["rules"]?.array else { return flag }
        var flag = flag
        flag["rules"] = .array(
            rules.map { rule in
                guard var object = rule.object, var experiment = object["experiment"]?.object,
                    experiment["group"] == nil, let key = object.identifier("key"),
                    definitions.group(of: definitions.experiments[key]) != nil
                else { return rule }
                experiment["group"] = .null
                object["experiment"] = .object(experiment)
                return .object(object)
            })
        return flag
    }

    // MARK: Experiments

    private func isRule(_ element: DefinitionSet.Element) -> Bool {
        guard let known = definitions.experiments[element.key] else { return element.object["variations"] == nil }
        return definitions.flags(ofExperiment: known.id).contains { $0.rules != nil }
    }

    private mutating func apply(experiment element: DefinitionSet.Element, isRule: Bool) {
        attempt(at: element.place) { run throws(CoreError) in try run.define(experiment: element, isRule: isRule) }
    }

    private mutating func define(experiment element: DefinitionSet.Element, isRule: Bool) throws(CoreError) {
        let (key, shown) = (element.key, shown[.experiments]?[element.key])
        var body = element.object
        if isRule { try checkRule(body, key) }
        let (given, allocation) = (body["conclusion"], body[DefinitionSet.allocation])
        (body["conclusion"], body[DefinitionSet.allocation]) = (nil, nil)
        let status = body["status"]?.string.flatMap { ExperimentStatus(name: $0) }
        var ending: ConclusionInput?
        if let given, !given.isNull {
            let wanted = try ConclusionInput(given, at: ["conclusion"])
            let known = try shown?["conclusion"].map { value throws(CoreError) in try ConclusionInput(value) }
            ending = wanted == known ? nil : wanted
        }
        if ending != nil {
            guard status == .concluded || status == .archived else {
                throw CoreError(
                    .unprocessable, "`conclusion` must come with the `status` concluded or archived", at: ["conclusion"]
                )
            }
            let now = definitions.experiments[key].flatMap { ExperimentStatus(name: $0.status) }
            body["status"] = nil
            if !isRule, now != .running, now != .paused, now != .concluded { body["status"] = "running" }
        } else if status == .concluded, definitions.experiments[key]?.conclusion == nil {
            throw CoreError(
                .unprocessable,
                "`conclusion` is required of a concluded experiment: {\"winner\":KEY or null,\"reason\":TEXT}",
                at: ["conclusion"])
        }
        try change(Experiment.self, key, changes(body, .experiments, key), at: element.place)
        if let ending {
            try definitions.conclude(key, as: ending, at: conclusion.time, by: conclusion.author)
            if status == .archived { try definitions.archive(key) }
        }
        guard project?.definitions.experiments[key] == nil, var experiment = definitions.experiments[key] else {
            return
        }
        if isRule, status == nil, experiment.details.schedule?.startAt != nil {
            experiment.status = ExperimentStatus.draft.rawValue
        }
        if let allocation { experiment.allocation = try Self.allocation(allocation, of: experiment) }
        definitions.experiments.set(experiment)
    }

    /// - Throws: 422 if an element has what the flag of its rule defines, or if there is no such rule.
    private func checkRule(_ body: JSONObject, _ key: Identifier) throws(CoreError) {
        guard let experiment = definitions.experiments[key],
            let flag = definitions.flags(ofExperiment: experiment.id).first(where: { $0.rules != nil })
        else {
            throw CoreError(.unprocessable, "a new experiment must have `variations`", at: ["variations"])
        }
        for member in ["id", "variations", "traffic", "enrollment", "group", "audience"] where body[member] != nil {
            throw CoreError(
                .unprocessable, "`\(member)` must be given in the flag '\(flag.key)', of which '\(key)' is a rule",
                at: JSONPointer().appending(member))
        }
        if let status = body["status"], status != "concluded", status != "archived" {
            throw CoreError(
                .unprocessable,
                "`status` must be given in the flag '\(flag.key)', of which '\(key)' is a rule, unless it is concluded",
                at: ["status"])
        }
    }

    /// Reads where a new experiment has which bucket values go where, so that it decides as on the server from which it comes.
    private static func allocation(
        _ value: JSONValue, of experiment: ExperimentDefinition
    ) throws(CoreError) -> TrafficAllocation {
        let place = JSONPointer().appending(DefinitionSet.allocation)
        guard let allocation = try? TrafficAllocation(json: value) else {
            throw CoreError(
                .unprocessable,
                "`traffic_allocation` must be an array of {\"entityId\":VARIATION ID,\"endOfRange\":0 to 10000}",
                at: place)
        }
        var (given, expected) = (allocation.shares, experiment.allocation.shares)
        (given[""], expected[""]) = (nil, nil)
        let names = Set(given.keys).union(expected.keys)
        // As much as rounding makes of it.
        guard names.allSatisfy({ abs((given[$0] ?? 0) - (expected[$0] ?? 0)) <= 2 }) else {
            throw CoreError(
                .unprocessable,
                "`traffic_allocation` must agree with the weights and the traffic; leave it out for a new one",
                at: place)
        }
        return allocation
    }

    // MARK: Groups and removals

    /// Divides the groups whose experiments have changed, new ones as they are in the set.
    mutating func divideGroups(_ set: DefinitionSet) {
        let known = Set(project?.definitions.groups.compactMap(\.name) ?? [])
        for element in set[.groups] where !known.contains(element.key.string) {
            attempt(at: element.place) { run throws(CoreError) in try run.define(group: element) }
        }
        let ids = definitions.unallocatedGroups ?? []
        definitions.unallocatedGroups = nil
        for id in ids.sorted() {
            attempt(at: []) { run throws(CoreError) in try run.definitions.allocateGroup(id) }
        }
    }

    private mutating func define(group element: DefinitionSet.Element) throws(CoreError) {
        let member = DefinitionSet.allocation
        var faults = FaultCollector()
        let object = faults.object(.object(element.object), "a group", knowing: ["name", member], at: [])
        var ranges: [TrafficAllocation.Range] = []
        for (value, place) in object.flatMap({ faults.list($0, member, 0...10_000, at: []) }) ?? [] {
            let known = ["experiment", "end_of_range"]
            guard let range = faults.object(value, "a range", knowing: known, at: place) else { continue }
            let key = faults.collect(try range.optionalText("experiment", in: place)).map { Identifier($0) }
            let id = key.flatMap { definitions.experiments[$0]?.id }
            if let key, id == nil {
                let hint = Spelling.hint(for: key, among: definitions.experiments.lazy.map(\.key))
                faults.add("no experiment has the key '\(key)'\(hint)", at: place.appending("experiment"))
            }
            guard let end = range["end_of_range"]?.integer, (0...10_000).contains(end) else {
                faults.add("`end_of_range` must be a whole number from 0 to 10000", at: place.appending("end_of_range"))
                continue
            }
            ranges.append(.init(entityID: id ?? "", end: Int(end)))
        }
        try faults.check()
        guard var group = definitions.groups.last(where: { $0.name == element.key.string }) else { return }
        group.allocation = TrafficAllocation(ranges: ranges)
        definitions.groups.set(group)
    }

    /// Removes what the set lacks.
    mutating func removeAll(except set: DefinitionSet) {
        func lacking(_ kind: DefinitionSet.Kind) -> [Identifier] {
            let kept = Set(set[kind].map(\.key))
            return former[kind].map(\.key).filter { !kept.contains($0) }
        }
        for key in lacking(.holdouts) { remove(Holdout.self, key) }
        for key in lacking(.flags) where definitions.flags[key]?.rules != nil { remove(Flag.self, key) }
        for key in lacking(.experiments) {
            guard let experiment = definitions.experiments[key], !experiment.isArchived, experiment.flagKey == nil
            else {
                continue
            }
            remove(Experiment.self, key)
        }
        for key in lacking(.metrics) where definitions.users(ofMetric: key).isEmpty {
            remove(MetricDefinition.self, key)
        }
    }

    private mutating func remove<Defined: DefinedElement>(_: Defined.Type, _ key: Identifier) {
        attempt(at: []) { run throws(CoreError) in try Defined.remove(key, from: &run.definitions) }
    }
}

extension DefinitionSet.Kind {
    /// What a member is that a file leaves out. Members that may also change by themselves keep their values.
    fileprivate var defaults: [String: JSONValue] {
        switch self {
        case .attributes, .segments, .groups: [:]
        case .metrics:
            ["cap": .null, "window": .null, "minimum_effect": .null, "direction": "increase", "description": .null]
        case .experiments:
            [
                "name": .null, "description": .null, "hypothesis": .null, "owner": .null, "tags": [], "metrics": .null,
                "plan": .null, "schedule": .null, "ramp": .null, "group": .null, "audience": .null,
            ]
        case .flags: ["rules": [], "description": .null, "tags": []]
        case .holdouts: ["flags": .null, "audience": .null, "description": .null, "metrics": .null]
        }
    }
}
