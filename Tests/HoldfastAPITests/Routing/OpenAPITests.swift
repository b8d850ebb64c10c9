import Bucketing
import Definitions
import Foundation
import JSON
import Logging
import Storage
import StorageSQLite
import Testing

@testable import HTTPServer
@testable import HoldfastAPI
@testable import HoldfastCore

/// The published description and the route table say the same.
@Suite struct OpenAPITests {
    private struct Operation {
        let name: String
        let path: String
        let value: JSONObject
        /// Of the operation and of its path.
        let parameters: [JSONObject]
    }

    private let document: JSONObject
    private let routes: [APIRoute]

    init() throws {
        document = try #require(try JSONParser(duplicateKeys: .refused).parse(OperationsEndpoints.openAPIText).object)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let path = NSTemporaryDirectory() + "/holdfast-" + UUID().uuidString
        let store = try SQLiteStore(SQLiteConfiguration(path: path))
        defer {
            store.close()
            for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: path + suffix) }
        }
        var options = Services.Options()
        options.servesAssistants = true
        let services = Services(
            store: store, projects: try ProjectCatalog(store: store, logger: logger),
            events: try EventQueue(store: store), access: AccessControl(), build: BuildInfo(version: "0", startedAt: 0),
            logger: logger, options: options)
        let application = try HoldfastApplication(services: services, loop: EventLoop(index: 0))
        defer { application.stop() }
        // The console's routes are a page, not an API.
        routes = application.routes.filter { route in
            route.pattern != "/" && !["/console", "/manual"].contains { route.pattern.hasPrefix($0) }
        }
    }

    @Test func `Every route is described and everything described is a route`() throws {
        #expect(Set(try operations().map(\.name)) == Set(routes.map { "\($0.method.name) \($0.pattern)" }))
        #expect(try operations().count == routes.count)
    }

    @Test func `Errors of every route of the native API lead to the manual`() {
        let ofAgent = [
            "activate", "batch", "config", "decide", "lookup", "notifications", "override", "save", "send-odp-event",
            "track",
        ]
        for route in routes where route.pattern.hasPrefix("/v1/") {
            if ofAgent.contains(where: { route.pattern == "/v1/\($0)" || route.pattern.hasPrefix("/v1/\($0)/") }) {
                continue
            }
            #expect(ManualLink.path(for: .badRequest, on: route.pattern, at: nil) != nil, "\(route.pattern)")
        }
    }

    /// The description is a committed file, so that it can be read as a whole. `HOLDFAST_WRITE_OPENAPI=1` writes it anew with
    /// what the tables say: a new member comes behind the one that precedes it in its table.
    @Test func `The members of definitions are described as their tables say`() throws {
        var described = document
        let changed =
            describe("ExperimentDefinition", "Experiment", ExperimentView.members, in: &described)
            + describe("FlagDefinition", "Flag", FlagView.members, in: &described)
            + describe(
                ["FlagRule", "properties", "experiment"], \.schema, FlagDefinition.experimentMembers, in: &described)
            + describe("MetricDefinition", "Metric", MetricDefinition.members, in: &described)
            + describe("HoldoutDefinition", "Holdout", HoldoutDefinition.members, in: &described)
            + describe("WebhookDefinition", "Webhook", Webhook.Definition.members, in: &described)
        if ProcessInfo.processInfo.environment["HOLDFAST_WRITE_OPENAPI"] != nil {
            let file = URL(filePath: #filePath).deletingLastPathComponent().appending(
                path: "../../../Sources/HoldfastAPI/openapi.json")
            try (JSONValue.object(described).indented() + "\n").write(to: file, atomically: true, encoding: .utf8)
        }
        #expect(changed == [], "write it anew with HOLDFAST_WRITE_OPENAPI=1, and build again")
    }

    /// A code that the description lacks breaks clients that are made from it.
    @Test func `Every enumeration has the values that the server's own has`() throws {
        func names<Value: RawRepresentable<String> & CaseIterable>(_: Value.Type) -> [String] {
            Value.allCases.map(\.rawValue)
        }
        let preview = names(ExperimentPreview.Warning.self) + DefinitionWarning.Code.ofOne.map(\.rawValue)
        let overview = ["paths", "/v1/overview", "get", "responses", "200", "content", "application/json", "schema"]
        let listed = overview + ["properties", "experiments", "items", "properties"]
        let enumerations: [(place: [String], values: [String])] = [
            (schema("ResultsWarning", "code"), names(ExperimentResults.Warning.Code.self)),
            (schema("ExperimentPreview", "warnings", "items", "code"), preview),
            (schema("DefinitionWarning", "code"), names(DefinitionWarning.Code.self)),
            (
                schema("DefinitionChanges", "changes", "items", "kind"),
                ["project"] + DefinitionSet.Kind.allCases.map(\.noun)
            ),
            (schema("Source"), Assignment.Source.allCases.map { "\($0)" }),
            (schema("Assigned", "source"), names(DecisionSource.self)),
            (schema("Explanation", "source"), names(DecisionSource.self)),
            (schema("Evaluation", "source"), names(DecisionSource.self)),
            (schema("Evaluation", "reason"), names(EvaluationReason.self)),
            (schema("Evaluation", "type"), names(Variable.Kind.self)),
            (schema("EvaluationCounts", "counts", "items", "reason"), names(ReportedEvaluations.Reason.self)),
            (schema("ExperimentDefinition", "status"), ExperimentStatus.allCases.map(\.name)),
            (schema("Experiment", "enrollment"), names(ExperimentChange.Enrollment.self)),
            (schema("Ramp", "on_alarm"), names(Ramp.AlarmAction.self)),
            (schema("Ramp", "state", "status"), names(Ramp.Status.self)),
            (schema("PlanResults", "verdict", "decision"), names(Verdict.Decision.self)),
            (schema("ExperimentResults", "verdict", "decision"), names(Verdict.Decision.self)),
            (listed + ["verdict", "properties", "decision"], names(Verdict.Decision.self)),
            (schema("PlanMetricVariation", "outcome"), names(Verdict.Finding.Outcome.self)),
            (listed + ["alarms", "items", "properties", "kind"], names(ExperimentWarning.self)),
            (schema("EventStored", "status"), names(ReportList.Status.self)),
            (schema("EventResults", "results", "items", "status"), names(ReportList.Status.self) + ["refused"]),
            (schema("AuditAction"), names(AuditAction.self)),
            (schema("Token", "scope"), names(Token.Scope.self)),
            (schema("Attribute", "type"), names(AttributeType.self)),
            (schema("AttributeDefinition", "type"), names(AttributeType.self)),
            (schema("Metric", "kind"), names(MetricDefinition.Kind.self)),
            (schema("Metric", "direction"), names(MetricDefinition.Direction.self)),
            (schema("Webhook", "format"), names(Webhook.Format.self)),
            (schema("OFREPEvaluation", "reason"), names(OFREPEvaluation.Reason.self)),
            (schema("OFREPFailure", "errorCode"), names(OFREPError.Code.self)),
        ]
        for (place, values) in enumerations {
            let described = document.object(at: place)["enum"]?.array?.filter { !$0.isNull }.compactMap(\.string)
            #expect(described?.sorted() == values.sorted(), "\(place.joined(separator: "/"))")
        }
    }

    /// Returns the place of a schema, or of one within by the names of members.
    private func schema(_ name: String, _ members: String...) -> [String] {
        members.reduce(["components", "schemas", name]) { $0 + ($1 == "items" ? [$1] : ["properties", $1]) }
    }

    /// Gives the schemas of a request and of a response the members of a table, and returns which were others.
    private func describe<Element>(
        _ request: String, _ response: String, _ table: MemberTable<Element>, in document: inout JSONObject
    ) -> [String] {
        describe([request], \.schema, table, in: &document) + describe([response], \.shownSchema, table, in: &document)
    }

    /// - Parameter name: the path to a schema within all schemas.
    private func describe<Element>(
        _ name: [String], _ schema: KeyPath<Member<Element>, JSONValue>, _ table: MemberTable<Element>,
        in document: inout JSONObject
    ) -> [String] {
        var changed: [String] = []
        let place = ["components", "schemas"] + name + ["properties"]
        var properties = document.object(at: place)
        var former: String?
        for member in table.members {
            let schema = member[keyPath: schema]
            let described = properties[member.name]
            #expect(!schema.isNull || described != nil, "describe `\(member.name)` in \(name)")
            if !schema.isNull, !(described.map { DefinitionChanges.areSame($0, schema) } ?? false) {
                properties.set(member.name, schema, after: former)
                changed.append("\(name.joined(separator: ".")).\(member.name)")
            }
            former = member.name
        }
        document = document.setting(properties, at: place)
        return changed
    }

    /// The routes that answer a token of a project: about its projects, about the user whom a request names, or with
    /// numbers and definitions that name nobody. Those that need no token, or any, reveal nothing about users.
    private static let routesOfProjects = """
        GET /ofrep/v1/changes
        GET /v1/config
        GET /v1/datafile
        POST /v1/activate
        POST /v1/decide
        POST /v1/lookup
        POST /v1/override
        POST /v1/save
        POST /v1/send-odp-event
        POST /v1/track
        POST /api/eval/{client_key}
        POST /get_evaluation
        POST /get_evaluations
        POST /mcp
        POST /ofrep/v1/evaluate/flags
        POST /ofrep/v1/evaluate/flags/{key}
        GET /openfeature/v0/manifest
        POST /predict/{rule_id}
        POST /register_events
        POST /sdk/v1/events
        POST /segment/v1/batch
        GET /sub/{client_key}
        GET POST /ups/lookup
        GET POST /ups/save
        GET POST /v1/assign
        GET /v1/attributes
        GET /v1/attributes/{name}
        POST /v1/audiences/size
        POST /v1/batch
        POST /v1/bucket
        PUT /v1/datafile
        GET /v1/datafile/history
        GET /v1/datafile/history/{version}
        GET PUT /v1/definitions
        POST /v1/definitions/preview
        POST /v1/evaluations
        POST /v1/evaluations/counts
        POST /v1/events
        GET /v1/experiments
        DELETE GET PUT /v1/experiments/{key}
        POST /v1/experiments/{key}/conclude
        GET /v1/experiments/{key}/goals
        GET /v1/experiments/{key}/history
        POST /v1/experiments/{key}/history/{version}/preview
        POST /v1/experiments/{key}/history/{version}/restore
        POST /v1/experiments/{key}/import
        POST /v1/experiments/{key}/plan
        POST /v1/experiments/{key}/preview
        POST /v1/experiments/{key}/ramp
        POST /v1/experiments/{key}/reopen
        GET /v1/experiments/{key}/report.html
        GET /v1/experiments/{key}/results
        GET /v1/experiments/{key}/results.svg
        GET /v1/experiments/{key}/results/series
        POST /v1/exposures
        GET /v1/flags
        DELETE GET PUT /v1/flags/{key}
        GET /v1/flags/{key}/history
        POST /v1/flags/{key}/history/{version}/preview
        POST /v1/flags/{key}/history/{version}/restore
        POST /v1/flags/{key}/preview
        GET /v1/holdouts
        DELETE GET PUT /v1/holdouts/{key}
        GET /v1/holdouts/{key}/history
        POST /v1/holdouts/{key}/history/{version}/preview
        POST /v1/holdouts/{key}/history/{version}/restore
        GET /v1/holdouts/{key}/results
        GET /v1/holdouts/{key}/results.svg
        POST /v1/logins
        GET /v1/metrics
        DELETE GET PUT /v1/metrics/{key}
        GET /v1/metrics/{key}/history
        POST /v1/metrics/{key}/history/{version}/preview
        POST /v1/metrics/{key}/history/{version}/restore
        GET /v1/notifications/event-stream
        GET /v1/overview
        POST /v1/profiles
        POST /v1/profiles/attributes
        POST /v1/profiles/lookup
        GET PATCH PUT /v1/profiles/{user_id}
        DELETE PATCH /v1/profiles/{user_id}/attributes
        GET /v1/profiles/{user_id}/evaluations
        GET /v1/profiles/{user_id}/events
        DELETE GET PUT /v1/profiles/{user_id}/experiments/{experiment}
        GET /v1/profiles/{user_id}/experiments/{experiment}/explain
        GET /v1/profiles/{user_id}/exposures
        POST /v1/profiles/{user_id}/merge
        GET /v1/projects
        DELETE GET PUT /v1/projects/{sdk_key}
        GET /v1/proposals
        GET /v1/proposals/{id}
        POST /v1/proposals/{id}/approve
        POST /v1/proposals/{id}/reject
        GET /v1/segments
        GET /v1/segments/{name}
        GET PATCH /v1/sticky-values/{key}
        POST /v1/sticky/lookup
        GET PATCH /v1/sticky/{attribute}/{value}
        GET /v1/webhooks
        DELETE GET PUT /v1/webhooks/{key}
        POST /v1/webhooks/{key}/rotate
        POST /v1/webhooks/{key}/test
        """

    @Test func `No other route answers a token of a project`() throws {
        let scopes = ["client", "read", "write", "attributes", "admin", "definitions", "export", "metrics", "edge"]
        let tokens = try scopes.flatMap { scope in
            try Token.parse("\(scope) the-\(scope) \(scope)-secret-0123456789 projects=shop")
        }
        let allowed = Self.routesOfProjects.split(separator: "\n").flatMap { line -> [String] in
            let words = line.split(separator: " ").map(String.init)
            return words.dropLast().map { "\($0) \(words.last ?? "")" }
        }
        let answering = routes.filter { route in
            !route.scope.needed.isEmpty && tokens.contains { route.scope.admits($0) }
        }.map { "\($0.method.name) \($0.pattern)" }
        #expect(Set(answering).subtracting(allowed).sorted() == [])
        #expect(Set(allowed).subtracting(answering).sorted() == [])
    }

    @Test func `Each operation names the scope that its route asks for`() throws {
        for operation in try operations() {
            let route = try #require(routes.first { "\($0.method.name) \($0.pattern)" == operation.name })
            let security = operation.value["security"]
            switch route.scope {
            case .none: #expect(security == [], "\(operation.name)")
            case .anyToken: #expect(security == [["token": []]], "\(operation.name)")
            case .token, .unbound, .profile:
                // OFREP takes the token as an API key, too.
                let alternatives = operation.path.hasPrefix("/ofrep/") ? ["token", "apiKey"] : ["token"]
                let expected = route.scope.needed.flatMap { scope in
                    alternatives.map { JSONValue.object(JSONObject(name: $0, .array([.string("\(scope)")]))) }
                }
                #expect(security == .array(expected), "\(operation.name)")
            }
        }
    }

    @Test func `Each operation has an id of its own, a summary and the answers that any such route gives`() throws {
        let operations = try operations()
        let ids = operations.compactMap { $0.value["operationId"]?.string }
        #expect(ids.count == operations.count)
        #expect(Set(ids).count == ids.count)
        for operation in operations {
            #expect(operation.value["summary"]?.string?.isEmpty == false, "\(operation.name)")
            let answers = try #require(operation.value["responses"]?.object)
            #expect(answers.contains { $0.key.hasPrefix("2") || $0.key == "501" }, "\(operation.name)")
            guard operation.value["security"] != [] else { continue }
            #expect(answers["401"] != nil, "\(operation.name)")
            // Every token may ask who it is.
            #expect((answers["403"] != nil) == (operation.path != "/v1/whoami"), "\(operation.name)")
        }
    }

    @Test func `Each part in braces of a path is a parameter, and the other way round`() throws {
        for operation in try operations() {
            let inPath = operation.path.matches(of: #/\{(\w+)\}/#).map { String($0.output.1) }
            let described = operation.parameters.filter { $0["in"] == "path" }.compactMap { $0["name"]?.string }
            #expect(Set(inPath) == Set(described), "\(operation.name)")
            #expect(operation.parameters.filter { $0["in"] == "path" }.allSatisfy { $0["required"] == true })
        }
    }

    @Test func `Every reference leads somewhere and every component is used`() throws {
        var references: Set<String> = []
        collectReferences(.object(document), into: &references)
        for reference in references { _ = try resolve(reference) }
        let components = try #require(document["components"]?.object)
        for kind in components where kind.key != "securitySchemes" {
            for component in try #require(kind.value.object) {
                #expect(references.contains("#/components/\(kind.key)/\(component.key)"))
            }
        }
    }

    /// Generators of clients make wrong code of an array without items, and of a constant that need not be there.
    @Test func `Every array has items, and no constant is optional or one of several alternatives`() {
        var faults: [String] = []
        func look(at value: JSONValue, _ place: String) {
            if let elements = value.array {
                for (index, element) in elements.enumerated() { look(at: element, "\(place)/\(index)") }
            }
            guard let object = value.object else { return }
            let types = object["type"]?.array ?? object["type"].map { [$0] } ?? []
            if types.contains("array"), object["items"] == nil, object["prefixItems"] == nil { faults.append(place) }
            for alternative in (object["oneOf"] ?? object["anyOf"])?.array ?? []
            where alternative.object?["const"] != nil {
                faults.append(place)
            }
            let required = object["required"]?.array ?? []
            for property in object["properties"]?.object ?? JSONObject() {
                guard property.value.object?["const"] != nil, !required.contains(.string(property.key)) else {
                    continue
                }
                faults.append("\(place)/\(property.key)")
            }
            for member in object { look(at: member.value, "\(place)/\(member.key)") }
        }
        look(at: document["components"] ?? .null, "components")
        look(at: document["paths"] ?? .null, "paths")
        #expect(faults == [])
    }

    private func operations() throws -> [Operation] {
        var operations: [Operation] = []
        for path in try #require(document["paths"]?.object) {
            let item = try #require(path.value.object)
            for method in item where method.key != "parameters" {
                let value = try #require(method.value.object)
                let parameters = (item["parameters"]?.array ?? []) + (value["parameters"]?.array ?? [])
                operations.append(
                    Operation(
                        name: "\(method.key.uppercased()) \(path.key)", path: path.key, value: value,
                        parameters: try parameters.map(resolved)))
            }
        }
        return operations
    }

    private func resolved(_ value: JSONValue) throws -> JSONObject {
        let object = try #require(value.object)
        guard let reference = object["$ref"]?.string else { return object }
        return try #require(try resolve(reference).object)
    }

    private func resolve(_ reference: String) throws -> JSONValue {
        try #require(reference.hasPrefix("#/"))
        return try reference.dropFirst(2).split(separator: "/").reduce(.object(document)) { value, key in
            try #require(value.object?[String(key)], "\(reference)")
        }
    }

    private func collectReferences(_ value: JSONValue, into references: inout Set<String>) {
        if let reference = value.object?["$ref"]?.string { references.insert(reference) }
        for member in value.object ?? JSONObject() { collectReferences(member.value, into: &references) }
        for element in value.array ?? [] { collectReferences(element, into: &references) }
    }
}

extension JSONObject {
    fileprivate init(name: String, _ value: JSONValue) {
        self.init()
        self[name] = value
    }
}

extension JSONObject {
    fileprivate func object(at place: [String]) -> JSONObject {
        guard let name = place.first else { return self }
        return (self[name]?.object ?? JSONObject()).object(at: Array(place.dropFirst()))
    }

    fileprivate func setting(_ object: JSONObject, at place: [String]) -> JSONObject {
        guard let name = place.first else { return object }
        var changed = self
        changed[name] = .object((self[name]?.object ?? JSONObject()).setting(object, at: Array(place.dropFirst())))
        return changed
    }

    /// Sets a member in its place, or a new one behind another one.
    ///
    /// - Parameter former: `nil` for a new one at the end.
    fileprivate mutating func set(_ name: String, _ value: JSONValue, after former: String?) {
        guard self[name] == nil, let former, self[former] != nil else {
            self[name] = value
            return
        }
        var changed = JSONObject()
        for member in self {
            changed[member.key] = member.value
            if member.key == former { changed[name] = value }
        }
        self = changed
    }
}

extension JSONValue {
    /// As it is in a file for people.
    fileprivate func indented(_ margin: String = "") -> String {
        let inner = margin + "  "
        func list(_ parts: [String], _ open: String, _ close: String) -> String {
            parts.isEmpty
                ? open + close : "\(open)\n\(inner)\(parts.joined(separator: ",\n\(inner)"))\n\(margin)\(close)"
        }
        func text(_ value: JSONValue) -> String { String(decoding: value.encoded(), as: UTF8.self) }
        switch self {
        case .array(let values): return list(values.map { $0.indented(inner) }, "[", "]")
        case .object(let object):
            return list(object.map { "\(text(.string($0.key))): \($0.value.indented(inner))" }, "{", "}")
        default: return text(self)
        }
    }
}
