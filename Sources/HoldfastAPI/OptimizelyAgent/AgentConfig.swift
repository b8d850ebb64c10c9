import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// `GET /v1/config`: the experiments, flags, attributes, audiences and events of the active datafile, in the format of
/// the SDKs' configuration.
///
/// Belongs to one event loop.
final class ConfigEndpoint {
    /// The last response for each SDK key, with the version of its datafile.
    private var responses: [String: (version: Int64, response: AgentResponse)] = [:]

    func get(_ request: AgentRequest) -> AgentResponse {
        let project = request.project
        if let known = responses[project.sdkKey], known.version == project.version { return known.response }
        var encoder = ConfigEncoder(project.datafile)
        encoder.appendConfig()
        let response = AgentResponse(.ok, encoder.writer)
        responses[project.sdkKey] = (project.version, response)
        return response
    }
}

/// `GET /v1/datafile`: the active datafile, byte for byte as it was uploaded, with an ETag.
struct AgentDatafileEndpoint {
    func get(_ request: AgentRequest) -> AgentResponse {
        AgentResponse(unchanged: request.project.content, entityTag: request.project.entityTag)
    }
}

/// Encodes the configuration of a project in the format of the Agent, in which experiments and variables repeat below
/// each flag that uses them.
struct ConfigEncoder {
    var writer = JSONWriter()
    private let datafile: Datafile
    private let audiences: AudienceTexts
    /// The first flag that uses an experiment, by the experiment's id.
    private let flagOfExperiment: [Identifier: Flag]
    /// The variables of all flags, by id.
    private let variables: [Identifier: Variable]

    init(_ datafile: Datafile) {
        self.datafile = datafile
        audiences = AudienceTexts(datafile)
        let uses = datafile.flags.flatMap { flag in flag.experiments.map { ($0.id, flag) } }
        flagOfExperiment = Dictionary(uses, uniquingKeysWith: { first, _ in first })
        variables = Dictionary(
            datafile.flags.flatMap(\.variables).map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Writes the whole configuration.
    mutating func appendConfig() {
        writer.beginObject()
        writer.member("environmentKey", datafile.environmentKey ?? "")
        writer.member("sdkKey", datafile.sdkKey ?? "")
        writer.member("revision", datafile.revision)
        appendExperiments("experimentsMap", datafile.experimentsBesideRules)
        writer.key("featuresMap")
        writer.beginObject()
        for flag in datafile.flags { append(flag) }
        writer.endObject()
        appendAttributes()
        audiences.appendList(to: &writer)
        appendEvents()
        writer.endObject()
    }

    /// Writes experiments by key. If several have the same key, only the first is written.
    private mutating func appendExperiments(_ name: StaticString, _ experiments: [Experiment]) {
        writer.key(name)
        writer.beginObject()
        var seen: Set<Identifier> = []
        for experiment in experiments where seen.insert(experiment.key).inserted {
            writer.key(text: experiment.key.string)
            append(experiment, of: flagOfExperiment[experiment.id])
        }
        writer.endObject()
    }

    /// Writes an experiment.
    ///
    /// - Parameter flag: the flag whose variables the variations have; `nil` if no flag uses the experiment.
    private mutating func append(_ experiment: Experiment, of flag: Flag?) {
        writer.beginObject()
        writer.member("id", experiment.id.string)
        writer.member("key", experiment.key.string)
        writer.member("audiences", audiences.text(of: experiment))
        writer.key("variationsMap")
        writer.beginObject()
        for variation in experiment.variations { append(variation, of: flag) }
        writer.endObject()
        writer.endObject()
    }

    /// Writes a variation with the values of all variables of the flag.
    private mutating func append(_ variation: Variation, of flag: Flag?) {
        writer.key(text: variation.key.string)
        writer.beginObject()
        writer.member("id", variation.id.string)
        writer.member("key", variation.key.string)
        writer.member("featureEnabled", variation.isFeatureEnabled)
        writer.key("variablesMap")
        writer.beginObject()
        let values = variation.variableValues
        let variablesOfFlag = flag?.variables ?? []
        for variable in variablesOfFlag {
            append(variable, value: variation.isFeatureEnabled ? values[variable.id] : nil)
        }
        // The Agent also lists variables of other flags, and variables of no flag under an empty key.
        var keys = Set(variablesOfFlag.map(\.key))
        for (id, value) in values.sorted(by: { $0.key < $1.key }) where keys.insert(variables[id]?.key ?? "").inserted {
            append(variables[id], id, value)
        }
        writer.endObject()
        writer.endObject()
    }

    /// Writes a flag with its rules, variables and experiments.
    private mutating func append(_ flag: Flag) {
        writer.key(text: flag.key.string)
        writer.beginObject()
        writer.member("id", flag.id.string)
        writer.member("key", flag.key.string)
        writer.key("experimentRules")
        writer.beginArray()
        for experiment in flag.experiments { append(experiment, of: flagOfExperiment[experiment.id]) }
        writer.endArray()
        writer.key("deliveryRules")
        writer.beginArray()
        for rule in flag.rollout?.rules ?? [] { append(rule, of: flag) }
        writer.endArray()
        writer.key("variablesMap")
        writer.beginObject()
        for variable in flag.variables { append(variable, value: nil) }
        writer.endObject()
        appendExperiments("experimentsMap", flag.experiments)
        writer.endObject()
    }
}

// MARK: - Variables, attributes and events

extension ConfigEncoder {
    /// Writes a variable.
    ///
    /// - Parameter value: the value; `nil` for the default.
    private mutating func append(_ variable: Variable, value: String?) {
        append(variable, variable.id, value ?? variable.defaultValue)
    }

    /// Writes the value of a variable.
    ///
    /// - Parameter variable: `nil` for a variable that no flag has.
    private mutating func append(_ variable: Variable?, _ id: Identifier, _ value: String) {
        let key = variable?.key.string ?? ""
        writer.key(text: key)
        writer.beginObject()
        writer.member("id", id.string)
        writer.member("key", key)
        writer.member("type", variable?.type ?? "")
        writer.member("value", value)
        writer.endObject()
    }

    private mutating func appendAttributes() {
        writer.key("attributes")
        writer.beginArray()
        for attribute in datafile.attributes {
            writer.beginObject()
            writer.member("id", attribute.id.string)
            writer.member("key", attribute.key.string)
            writer.endObject()
        }
        writer.endArray()
    }

    private mutating func appendEvents() {
        writer.key("events")
        writer.beginArray()
        for event in datafile.events {
            writer.beginObject()
            writer.member("id", event.id.string)
            writer.member("key", event.key.string)
            writer.member("experimentIds", event.experimentIDs.map(\.string))
            writer.endObject()
        }
        writer.endArray()
    }
}
