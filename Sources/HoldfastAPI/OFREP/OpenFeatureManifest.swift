import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The read-only part of the sync API, version 0, from which the OpenFeature CLI generates typed accessors of flags.
struct OpenFeatureManifestProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/openfeature"]

    init(_ loop: LoopServices) {
        let manifest = OpenFeatureManifest(catalog: loop.services.projects, projects: loop.projects)
        routes = [
            APIRoute(
                .get, "/openfeature/v0/manifest", scope: .token(.read, or: .definitions), respondsLater: true,
                manifest.get)
        ].map(\.atEdge)
    }

    /// `{"error":{"message","status"}}`
    func response(to error: any Error, on _: String?) -> Response {
        let problem = Problem(error)
        let body: JSONValue = [
            "error": ["message": .string(problem.detail), "status": .integer(Int64(problem.status.code))]
        ]
        var response = Response.json(body, problem.status)
        response.fields = problem.fields
        return response
    }
}

/// `GET /openfeature/v0/manifest`: the flags with their types and defaults. The format has no type for arrays, so
/// flags with such values are left out.
struct OpenFeatureManifest {
    let catalog: ProjectCatalog
    let projects: ProjectView

    /// Responds with the manifest of a project; an empty one if the server has no project.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let project =
            if let sdkKey = request.sdkKey {
                try projects.project(named: sdkKey, for: call.access)
            } else {
                try projects.project(ofAny: call)
            }
        let flags = try await catalog.inBackground { _ in
            project.map { project in project.datafile.flags.compactMap { Self.flag($0, of: project) } } ?? []
        }
        var response = Response.json(["flags": .array(flags)])
        response.fields = [("X-Manifest-Capabilities", "read")]
        return response
    }

    /// Returns the entry of a flag; `nil` if the format has no type for its value, or if it serves an archived
    /// experiment.
    private static func flag(_ flag: Flag, of project: Project) -> JSONValue? {
        let description = flag.description(in: project).object ?? JSONObject()
        let isOfExperiment = description["defined_by"] == "experiment"
        let experiment = isOfExperiment ? project.datafile.experiment(key: flag.key) : nil
        guard experiment?.status != ExperimentStatus.archived.rawValue else { return nil }
        let variations = (description["variations"]?.array ?? []).compactMap(\.object)
        // An experiment's default is its baseline, the first variation.
        let defaultVariation = variations.first { isOfExperiment || $0["key"] == description["otherwise"] }
        let value = defaultVariation?["value"] ?? flag.defaultValue
        let type: String
        switch value {
        case .bool: type = "boolean"
        case .string: type = "string"
        case .object: type = "object"
        case .integer where FlagEvaluation.type(of: flag) == .integer: type = "integer"
        case .integer, .number: type = "float"
        default: return nil
        }
        var object = JSONObject()
        object["key"] = .string(flag.key.string)
        object["type"] = .string(type)
        object["defaultValue"] = value
        if let text = description["description"], text != "" { object["description"] = text }
        return .object(object)
    }
}

extension Flag {
    /// The default value, for users without a variation.
    fileprivate var defaultValue: JSONValue {
        guard !variables.isEmpty else { return false }
        let values = values(for: nil)
        if FlagEvaluation.type(of: self) != nil { return values.first?.value ?? .null }
        var object = JSONObject()
        for variable in values { object[variable.key.string] = variable.value }
        return .object(object)
    }
}
