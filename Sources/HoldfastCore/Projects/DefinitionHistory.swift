import Bucketing
import Chronology
import Definitions
public import JSON
public import Storage

/// What the ids of a project meant and mean: a row for each variation of an experiment, a holdout or a flag and each time in which
/// nothing of the row changed, made of the datafiles that a store keeps.
public struct DefinitionHistory {
    private struct Name: Hashable {
        let kind: String
        let id: Identifier
        /// The id of the variation; of a flag its key.
        let variation: Identifier
    }

    private struct Row: Equatable {
        let name: Name
        let key: Identifier
        let label: String
        let status: String
        let variationKey: Identifier
        /// In hundredths of a percent of the bucket values; `nil` for flags.
        var allocation: Int?
        /// Of a flag's variation, as JSON.
        var value: String?
    }

    private let sdkKey: String
    /// With the time since which they are valid.
    private var valid: [(row: Row, since: Instant)] = []
    /// The rows that are valid no longer, the oldest first.
    private var ended: [JSONObject] = []

    public init(sdkKey: String) {
        self.sdkKey = sdkKey
    }

    /// Adds the next datafile.
    ///
    /// - Throws: ``JSONError`` if it is no JSON.
    public mutating func add(_ stored: StoredDatafile) throws {
        let rows = Self.rows(try JSONParser().parse(stored.content))
        let known = Dictionary(rows.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
        var unchanged: Set<Name> = []
        valid = valid.filter { row, since in
            if known[row.name] == row { return unchanged.insert(row.name).inserted }
            ended.append(json(row, since: since, until: stored.storedAt))
            return false
        }
        valid += rows.filter { !unchanged.contains($0.name) }.map { ($0, stored.storedAt) }
    }

    /// Every row, those that are valid now last. `valid_to` is null for these.
    public var rows: [JSONObject] { ended + valid.map { json($0.row, since: $0.since, until: nil) } }

    private static func rows(_ datafile: JSONValue) -> [Row] {
        let definitions = ProjectDefinitions(datafile)
        var rows: [Row] = []
        for experiment in definitions.experiments {
            let shares = experiment.allocation.shares
            for variation in experiment.variations {
                rows.append(
                    Row(
                        name: Name(kind: "experiment", id: experiment.id, variation: variation.id),
                        key: experiment.key, label: experiment.details.name,
                        status: ExperimentStatus.name(of: experiment.status), variationKey: variation.key,
                        allocation: shares[variation.id] ?? 0))
            }
        }
        for holdout in definitions.holdoutObjects {
            let allocation = holdout["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) } ?? .empty
            for variation in holdout.objects("variations") {
                guard let id = holdout.identifier("id"), let key = holdout.identifier("key"),
                    let variationID = variation.identifier("id"), let variationKey = variation.identifier("key")
                else { continue }
                rows.append(
                    Row(
                        name: Name(kind: "holdout", id: id, variation: variationID), key: key, label: "",
                        status: ExperimentStatus.name(of: holdout["status"]?.string ?? ""), variationKey: variationKey,
                        allocation: allocation.shares[variationID] ?? 0))
            }
        }
        // What a datafile brought has no variations by itself, and what serves an experiment has those of that.
        for flag in definitions.flags {
            for variation in flag.rules?.variations ?? [] {
                rows.append(
                    Row(
                        name: Name(
                            kind: "flag", id: flag.source.identifier("id") ?? flag.key, variation: variation.key),
                        key: flag.key, label: flag.description, status: flag.isEnabled ? "enabled" : "disabled",
                        variationKey: variation.key,
                        value: String(decoding: variation.value.encoded(), as: UTF8.self)))
            }
        }
        return rows
    }

    private func json(_ row: Row, since: Instant, until: Instant?) -> JSONObject {
        var object = JSONObject()
        object["project"] = .string(sdkKey)
        object["kind"] = .string(row.name.kind)
        object["key"] = JSONValue(row.key)
        object["id"] = JSONValue(row.name.id)
        object["name"] = .string(row.label)
        object["status"] = .string(row.status)
        object["variation_key"] = JSONValue(row.variationKey)
        object["variation_id"] = row.value == nil ? JSONValue(row.name.variation) : .null
        object["allocation"] = row.allocation.map { .shortest(Double($0) / 100) } ?? .null
        object["value"] = row.value.map { .string($0) } ?? .null
        object["valid_from"] = .string(since.rfc3339)
        object["valid_to"] = until.map { .string($0.rfc3339) } ?? .null
        return object
    }
}
