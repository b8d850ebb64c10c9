import APITestSupport
import Chronology
import JSON
import Storage

/// A response that no rule of the API allows.
struct WrongResponse: Error, CustomStringConvertible {
    let description: String
}

extension Operation {
    /// How the server is asked for it, now.
    func request(for user: String) -> (method: String, target: String, body: String?) {
        let path = "/v1/profiles/\(user)"
        return switch self {
        case .save(let map): ("POST", "/ups/save", Self.body(map, of: user))
        case .keep(let map): ("PATCH", path + "?on_conflict=keep", Self.body(map, of: user))
        case .put(let map): ("PUT", path, Self.body(map, of: user))
        case .override(let experiment, let variation, let reason, let milliseconds):
            (
                "PUT", "\(path)/experiments/\(experiment)",
                Self.override(
                    variation, because: reason, until: milliseconds.map { systemWallClock() + .milliseconds(Int64($0)) }
                )
            )
        case .remove(let experiment): ("DELETE", "\(path)/experiments/\(experiment)", nil)
        case .erase: ("DELETE", path, nil)
        case .assign(let experiment, _, _):
            ("POST", "/v1/assign", "{\"user_id\":\"\(user)\",\"experiment\":\"\(experiment)\"}")
        case .evaluate(let experiment, _, _):
            (
                "POST", "/ofrep/v1/evaluate/flags/\(DatafileExperiment.key(of: experiment))",
                "{\"context\":{\"targetingKey\":\"\(user)\"}}"
            )
        case .expose(let experiment, let variation, _, _):
            (
                "POST", "/v1/exposures",
                "{\"user_id\":\"\(user)\",\"experiment\":\"\(experiment)\",\"variation_id\":\"\(variation)\"}"
            )
        case .assignBeside(let anonymous, let experiment, _, _):
            (
                "POST", "/v1/assign",
                "{\"user_id\":\"\(user)\",\"anonymous_id\":\"\(anonymous)\",\"experiment\":\"\(experiment)\"}"
            )
        case .force(let experiment, let variation):
            (
                "POST", "/v1/override",
                "{\"userId\":\"\(user)\",\"experimentKey\":\"\(DatafileExperiment.key(of: experiment))\","
                    + "\"variationKey\":\"\(variation.map { "k" + $0 } ?? "")\"}"
            )
        case .merge(let anonymous): ("POST", path + "/merge", "{\"from\":\"\(anonymous)\"}")
        case .read: ("GET", path + "?detail=true", nil)
        case .lookup: ("POST", "/ups/lookup", "{\"user_id\":\"\(user)\"}")
        }
    }

    private static func override(_ variation: String, because reason: String?, until end: Instant?) -> String {
        var members = ["\"variation_id\":\"\(variation)\""]
        if let reason { members.append("\"reason\":\"\(reason)\"") }
        if let end { members.append("\"expires_at\":\"\(end.rfc3339)\"") }
        return "{\(members.joined(separator: ","))}"
    }

    static func body(_ map: [String: String], of user: String) -> String {
        let entries = map.sorted { $0.key < $1.key }.map { "\"\($0.key)\":{\"variation_id\":\"\($0.value)\"}" }
        return "{\"user_id\":\"\(user)\",\"experiment_bucket_map\":{\(entries.joined(separator: ","))}}"
    }

    /// What the response says.
    ///
    /// - Returns: `nothing` when the server says that it could not do it.
    func observation(in response: TestResponse) throws(WrongResponse) -> Observation {
        if response.status == 503 { return .nothing }
        switch (self, response.status) {
        case (.save, 200), (.keep, 200), (.lookup, 200), (.merge, 200): return .profile(try Self.variations(response))
        case (.put, 200): return .replacement(existed: true, try Self.variations(response))
        case (.put, 201): return .replacement(existed: false, try Self.variations(response))
        case (.override, 200), (.assign, 200), (.assignBeside, 200):
            guard let variation = response["variation_id"].string else { break }
            return .variation(variation)
        case (.evaluate, 200):
            guard let key = response["variant"].string else { break }
            return .variation(DatafileExperiment.variation(ofKey: key))
        case (.expose, 200), (.force, 200): return .acknowledgement
        // A server need not know yet of a variation that has come back.
        case (.override, 422), (.expose, 422): return .refusal
        // Its time may be over before it is set.
        case (.override(_, _, _, _?), 400): return .refusal
        case (.remove, 204): return .removal(found: true)
        case (.remove, 404): return .removal(found: false)
        case (.erase, 200), (.erase, 404): return .acknowledgement
        case (.read, 200): return .detail(try Self.detail(response))
        case (.read, 404): return .detail(nil)
        default: break
        }
        throw WrongResponse(description: "\(self): \(response.status) \(response.text)")
    }

    private static func variations(_ response: TestResponse) throws(WrongResponse) -> [String: String] {
        try entries(response) { $0["variation_id"].string }
    }

    private static func detail(_ response: TestResponse) throws(WrongResponse) -> [String: Observation.Detail] {
        try entries(response) { entry in
            guard let variation = entry["variation_id"].string,
                let source = entry["source"].string.flatMap(ModelProfile.Source.init)
            else { return nil }
            return .init(variation: variation, source: source, reason: entry["reason"].string)
        }
    }

    private static func entries<Value>(
        _ response: TestResponse, _ value: (JSONValue) -> Value?
    ) throws(WrongResponse) -> [String: Value] {
        guard let map = response["experiment_bucket_map"].object else {
            throw WrongResponse(description: "not a profile: \(response.text)")
        }
        var entries: [String: Value] = [:]
        for member in map {
            guard let value = value(member.value) else {
                throw WrongResponse(description: "not a profile: \(response.text)")
            }
            entries[member.key] = value
        }
        return entries
    }
}

extension Observation {
    /// What is left of it when the operation may have happened before, without a response.
    var ofRepetition: Observation {
        switch self {
        case .replacement(_, let map): .profile(map)
        case .removal: .acknowledgement
        default: self
        }
    }
}
