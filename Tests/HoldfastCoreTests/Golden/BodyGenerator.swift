import Foundation
import JSON
import TestSupport

/// Makes bodies of requests, right and wrong ones, from the schemas of `openapi.json`. The same seed makes the same bodies.
struct BodyGenerator {
    private static let schemas: JSONObject = {
        let path = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../../Sources/HoldfastAPI/openapi.json")
        let document = (try? Data(contentsOf: path)).flatMap { try? JSONParser().parse(Array($0)) }
        return document?.object?["components"]?.object?["schemas"]?.object ?? JSONObject()
    }()

    private static let day = 86_400_000
    /// Values of members that have the name, besides those that the schema says. A text of another name is one of `""`.
    private static let pools: [String: [JSONValue]] = {
        let metrics: [JSONValue] = [
            "signups", "revenue", "items", "average", "path", "perorder", "back", "x", "revenu",
        ]
        let audience: JSONValue = ["name": "plan", "type": "custom_attribute", "match": "exact", "value": "pro"]
        return [
            "": ["control", "new", "on", "off", "a", "Some text", "", "é"],
            "key": ["control", "new", "bold", "on", "off", "a", "", "new"], "id": ["9001", "e1", "v-1", "77", "a b"],
            "metric": metrics, "primary": metrics, "secondary": metrics, "goal": ["buy", "sign up", "\u{1}x", ""],
            "goals": ["buy", "visit", "sign up", "pay", "leave"], "flags": ["banner", "switch", "checkout", "baner"],
            "for": ["90s", "30m", "2d", "x", "0s", "400d"], "every": ["12h", "1d", "1m", "30s", "soon"],
            "assignment_ttl": ["30d", "forever", "12h", "0d", "9999d", "ever"], "group": ["g1", "g2", ""],
            "start_at": ["2026-03-01T00:00:00Z", "2026-04-01T12:00:00.5Z", "2026-02-30", "tomorrow"],
            "end_at": ["2026-03-01T00:00:00Z", "2026-05-01T12:00:00+02:00", "never"],
            "status": ["draft", "Running", "PAUSED", "archived", "concluded", "not_started", "gone"],
            "breakdowns": ["plan", "orders", "city"], "attribute": ["orders", "plan", ""],
            "sdk_key": ["default", "default", "other"], "winner": ["control", "new", nil, "x"],
            "tags": ["web", "app", "web", "", "ios"], "otherwise": ["on", "off", "control", "new", "short", "x"],
            "variation": ["on", "off", "control", "new", "short", "x"],
            "value": [true, false, 1, 2.5, "Hi", ["a": 1], ["x"], nil],
            "weights": ["control", "new", "on", "off", "short"],
            "audience": [
                nil, audience, [audience], ["or", audience, ["segment": "pros"]], ["segment": "pros"],
                ["not", ["name": "orders", "match": "gt", "value": 3]], ["and"], ["segment": "nobody"],
                ["name": "plan", "match": "in", "value": ["pro", "free"]], "11", ["or", "11"], 5, ["nand", audience],
                ["name": "plan", "match": "semver", "value": "pro"], ["name": "", "value": "pro"], ["segment": 5],
                ["name": "orders", "match": "lt", "value": "many"], ["name": "city", "match": "exists"],
            ],
        ]
    }()
    private static let odd: [JSONValue] = [
        nil, true, false, 0, -1, 1, 2, 101, 0.005, 1.5, 1e300, 12_345_678_901, "", "x", " ", "Running", [], [:], ["a"],
        ["a", "a"], [["key": "a"]], ["a": 1], ["key": "control"], [nil],
        .string(String(repeating: "long", count: 1_100)),
    ]

    var random: SeededGenerator
    /// Whether all is to be right, as far as the schema and the first values of the pools say.
    private var isCareful = false

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    mutating func chance(_ share: Double) -> Bool { Double.random(in: 0..<1, using: &random) < share }

    mutating func one<Value>(of values: [Value]) -> Value { values[Int.random(in: 0..<values.count, using: &random)] }

    private mutating func one(ofPool pool: [JSONValue]) -> JSONValue {
        one(of: isCareful ? Array(pool.prefix(max(1, pool.count / 2))) : pool)
    }

    /// Returns a body of the schema with a name; half of them have something wrong in them.
    mutating func body(_ schema: String) -> JSONValue {
        isCareful = chance(0.5)
        var body = value(Self.schemas[schema] ?? .null, "")
        guard !isCareful else { return body }
        if chance(0.02) { return one(of: Self.odd) }
        if chance(0.3) { body = spoiled(body) }
        if chance(0.1) { body = spoiled(body) }
        return body
    }

    /// Changes something in a value.
    mutating func spoiled(_ value: JSONValue) -> JSONValue {
        if let object = value.object, !object.isEmpty, chance(0.9) {
            var changed = JSONObject()
            let chosen = Int.random(in: 0..<object.count, using: &random)
            for (index, member) in object.enumerated() {
                guard index == chosen else {
                    changed[member.key] = member.value
                    continue
                }
                switch Int.random(in: 0..<10, using: &random) {
                case 0: break
                case 1: changed[member.key + "s"] = member.value
                case 2: (changed[member.key], changed["unknown"]) = (member.value, true)
                default: changed[member.key] = spoiled(member.value)
                }
            }
            return .object(changed)
        }
        if let array = value.array, !array.isEmpty, chance(0.8) {
            var changed = array
            let chosen = Int.random(in: 0..<array.count, using: &random)
            switch Int.random(in: 0..<8, using: &random) {
            case 0: changed.remove(at: chosen)
            case 1: changed.append(array[chosen])
            default: changed[chosen] = spoiled(array[chosen])
            }
            return .array(changed)
        }
        return one(of: Self.odd)
    }

    /// Returns a value as a schema describes it, for the member of a name.
    private mutating func value(_ schema: JSONValue, _ name: String) -> JSONValue {
        guard let schema = schema.object else { return one(of: [1, "x", true]) }
        if let reference = schema["$ref"]?.string {
            return value(Self.schemas[reference.split(separator: "/").last.map(String.init) ?? ""] ?? .null, name)
        }
        if let pool = Self.pools[name], name == "audience" || name == "value" { return one(ofPool: pool) }
        if let choices = schema["oneOf"]?.array { return value(one(of: choices), name) }
        let types = schema["type"]?.array?.compactMap(\.string) ?? [schema["type"]?.string ?? "string"]
        if types.contains("null"), chance(0.1) { return .null }
        if let pool = Self.pools[name], name == "status", chance(0.3) { return one(ofPool: pool) }
        if let choices = schema["enum"]?.array { return one(of: choices) }
        switch types.first {
        case "boolean": return .bool(chance(0.5))
        case "number", "integer": return number(schema, isWhole: types.first == "integer")
        case "array": return array(schema, name)
        case "object": return object(schema, name)
        default: return one(ofPool: Self.pools[name] ?? Self.pools[""] ?? [])
        }
    }

    private mutating func number(_ schema: JSONObject, isWhole: Bool) -> JSONValue {
        let least = schema["minimum"]?.double ?? 0
        let greatest = schema["maximum"]?.double ?? 100
        let usual: [Double] = [1, 2, 3, 5, 10, 14, 20, 50, 100]
        if isWhole {
            let number = one(of: usual + [least, greatest])
            return .integer(Int64(isCareful ? min(max(number, least), greatest) : number))
        }
        var number = one(of: usual + [least, greatest, 0.5, 0.05, 33.33, Double.random(in: 0...50, using: &random)])
        if isCareful { number = min(max(number, max(least, 0.001)), greatest) }
        return .shortest((number * 1_000).rounded() / 1_000)
    }

    private mutating func array(_ schema: JSONObject, _ name: String) -> JSONValue {
        let least = Int(schema["minItems"]?.integer ?? 0)
        let greatest = min(3, Int(schema["maxItems"]?.integer ?? 3))
        let count = chance(0.03) ? 0 : Int.random(in: least...max(least, greatest), using: &random)
        let items = schema["items"] ?? .null
        var elements = (0..<count).map { _ in value(items, name) }
        // Most lists have each element once.
        if chance(0.8) {
            elements = elements.enumerated().filter { !elements[..<$0.offset].contains($0.element) }.map(\.element)
        }
        return .array(elements)
    }

    private mutating func object(_ schema: JSONObject, _ name: String) -> JSONValue {
        var object = JSONObject()
        let required = schema["required"]?.array ?? []
        let members = schema["properties"]?.object?.map { $0 } ?? []
        let share = one(of: [0.1, 0.2, 0.4])
        let leading = ["variations", "share", "type", "kind", "goal"]
        for member in members.sorted(by: { $0.key < $1.key }) {
            let isIgnored = member.value.object?["type"] == nil && member.value.object?.count == 1
            let isGiven = ["id", "key", "sdk_key"].contains(member.key) && !required.contains(.string(member.key))
            if isCareful, isGiven || isIgnored { continue }
            if isCareful, leading.contains(member.key), chance(0.4) {
                object[member.key] = value(member.value, member.key)
                continue
            }
            if required.contains(.string(member.key)) ? chance(0.97) : chance(isIgnored ? 0.02 : share) {
                object[member.key] = value(member.value, member.key)
            }
        }
        if let others = schema["additionalProperties"], others.object != nil {
            for _ in 0...1 { object[one(of: Self.pools[name] ?? []).string ?? ""] = value(others, "") }
        }
        return .object(object)
    }
}
