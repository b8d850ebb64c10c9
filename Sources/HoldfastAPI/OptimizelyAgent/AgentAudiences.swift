import Bucketing
import Definitions
import JSON

/// The audiences of a project, as `GET /v1/config` describes them.
struct AudienceTexts {
    /// The audiences in the format of the datafile, with `typedAudiences` first.
    private let audiences: [(id: String, name: String, conditions: JSONValue)]
    /// The names of the audiences by their ids.
    private let names: [Identifier: String]
    /// The `audienceConditions` of experiments, if they are arrays, by the id of the experiment. Like the Agent, this
    /// type does not describe `audienceIds`.
    private let conditions: [Identifier: [JSONValue]]

    init(_ datafile: Datafile) {
        let source = datafile.source
        var audiences: [(id: String, name: String, conditions: JSONValue)] = []
        var names: [Identifier: String] = [:]
        for audience in source.objects("typedAudiences") + source.objects("audiences") {
            let id = audience["id"]?.string ?? ""
            // Optimizely adds this audience for SDKs that cannot read typed audiences.
            guard id != "$opt_dummy_audience", names[Identifier(id)] == nil else { continue }
            let name = audience["name"]?.string ?? ""
            names[Identifier(id)] = name
            audiences.append((id, name, audience["conditions"] ?? .null))
        }
        self.audiences = audiences
        self.names = names
        let holders = [source] + (source.objects("groups") + source.objects("rollouts")).map { .object($0) }
        var conditions: [Identifier: [JSONValue]] = [:]
        for experiment in holders.flatMap({ $0.objects("experiments") }) {
            guard let id = experiment["id"]?.string, let list = experiment["audienceConditions"]?.array else {
                continue
            }
            conditions[Identifier(id)] = list
        }
        self.conditions = conditions
    }

    /// Describes an audience, such as `"Gold" AND ("US" OR "Canada")`; empty for an experiment without conditions.
    func text(of experiment: Experiment) -> String {
        conditions[experiment.id].map { text($0) } ?? ""
    }

    /// Describes a list of conditions, `["or", ID, ["and", ID, ID]]`.
    private func text(_ list: [JSONValue]) -> String {
        var text = ""
        // A list without an operator is met if one of its conditions is.
        var operation = "OR"
        for element in list {
            let operand: String
            switch element {
            case .string("and"), .string("or"), .string("not"):
                operation = element.string?.uppercased() ?? operation
                continue
            case .string(let id): operand = JSONWriter.quoted(names[Identifier(id)] ?? id)
            case .array(let elements): operand = "(\(self.text(elements)))"
            default: continue
            }
            if !text.isEmpty {
                text += " \(operation) \(operand)"
            } else {
                text = operation == "NOT" ? "NOT \(operand)" : operand
            }
        }
        return text
    }

    /// Writes the member `audiences`. Conditions are strings, as in the configuration of the SDKs.
    func appendList(to writer: inout JSONWriter) {
        writer.key("audiences")
        writer.beginArray()
        for audience in audiences {
            writer.beginObject()
            writer.member("id", audience.id)
            writer.member("name", audience.name)
            let text = String(decoding: audience.conditions.encoded(sortingKeys: true), as: UTF8.self)
            writer.member("conditions", audience.conditions.string ?? text)
            writer.endObject()
        }
        writer.endArray()
    }
}

extension JSONValue {
    /// Returns the objects in an array member; none if there is no such array.
    fileprivate func objects(_ key: String) -> [JSONObject] {
        object?.objects(key) ?? []
    }
}

extension JSONObject {
    fileprivate func objects(_ key: String) -> [JSONObject] {
        self[key]?.array?.compactMap(\.object) ?? []
    }
}
