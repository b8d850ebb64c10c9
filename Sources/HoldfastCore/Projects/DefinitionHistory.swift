import Bucketing
import Chronology
import Definitions
public import JSON
public import Storage

/// The meanings that the ids of a project's variations have had, for `holdfast export definitions`.
///
/// The history has a row for each variation of an experiment, a holdout or a flag, and for each period in which the row
/// stayed the same. Pass the datafiles that the store keeps to ``add(_:)``, oldest first. Then ``rows`` has the
/// history.
public struct DefinitionHistory {
    /// Identifies the variation of a row.
    private struct Name: Hashable {
        /// `experiment`, `holdout` or `flag`.
        let kind: String
        /// The id of the experiment, the holdout or the flag.
        let id: Identifier
        /// The id of the variation; for a flag, whose variations have no ids, the key.
        let variation: Identifier
    }

    /// The data of a variation in a datafile.
    private struct Row: Equatable {
        let name: Name
        /// The key of the experiment, the holdout or the flag.
        let key: Identifier
        /// The name of an experiment for people, or the description of a flag.
        let label: String
        let status: String
        let variationKey: Identifier
        /// The share of the bucket values, in hundredths of a percent; `nil` for flags.
        var allocation: Int?
        /// The value of a flag's variation, as JSON; `nil` for experiments and holdouts.
        var value: String?
    }

    /// A row of the last datafile.
    private struct ValidRow {
        let row: Row
        /// When the first datafile with this row was stored.
        let since: Instant
    }

    private let sdkKey: String
    private var validRows: [ValidRow] = []
    /// The rows that later datafiles changed or removed, as JSON. Oldest first.
    private var endedRows: [JSONObject] = []

    public init(sdkKey: String) {
        self.sdkKey = sdkKey
    }

    /// Adds the next datafile.
    ///
    /// - Throws: ``JSONError`` if the datafile is not JSON.
    public mutating func add(_ stored: StoredDatafile) throws {
        let rows = Self.allRows(of: ProjectDefinitions(try JSONParser().parse(stored.content)))
        let rowsByName = Dictionary(rows.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
        var unchanged: Set<Name> = []
        validRows = validRows.filter { valid in
            // A datafile may have the same variation several times. One of its rows is kept.
            if rowsByName[valid.row.name] == valid.row { return unchanged.insert(valid.row.name).inserted }
            endedRows.append(json(valid, until: stored.storedAt))
            return false
        }
        let newRows = rows.filter { !unchanged.contains($0.name) }
        validRows += newRows.map { ValidRow(row: $0, since: stored.storedAt) }
    }

    /// All rows: first those that are no longer valid, then those of the last datafile, whose `valid_to` is null.
    public var rows: [JSONObject] { endedRows + validRows.map { json($0, until: nil) } }

    // MARK: Rows of a datafile

    private static func allRows(of definitions: ProjectDefinitions) -> [Row] {
        var rows: [Row] = []
        for experiment in definitions.experiments { rows += experimentRows(experiment) }
        for holdout in definitions.holdoutObjects { rows += holdoutRows(holdout) }
        for flag in definitions.flags { rows += flagRows(flag) }
        return rows
    }

    private static func experimentRows(_ experiment: ExperimentDefinition) -> [Row] {
        let shares = experiment.allocation.shares
        return experiment.variations.map { variation in
            Row(
                name: Name(kind: "experiment", id: experiment.id, variation: variation.id), key: experiment.key,
                label: experiment.details.name, status: ExperimentStatus.name(of: experiment.status),
                variationKey: variation.key, allocation: shares[variation.id] ?? 0)
        }
    }

    /// - Parameter holdout: the element of the datafile, because definitions do not have the holdouts of uploaded
    ///   datafiles.
    private static func holdoutRows(_ holdout: JSONObject) -> [Row] {
        guard let id = holdout.identifier("id"), let key = holdout.identifier("key") else { return [] }
        let allocation = holdout["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) } ?? .empty
        let status = ExperimentStatus.name(of: holdout["status"]?.string ?? "")
        return holdout.objects("variations").compactMap { variation in
            guard let variationID = variation.identifier("id"), let variationKey = variation.identifier("key") else {
                return nil
            }
            return Row(
                name: Name(kind: "holdout", id: id, variation: variationID), key: key, label: "", status: status,
                variationKey: variationKey, allocation: allocation.shares[variationID] ?? 0)
        }
    }

    /// Returns the rows of a flag that the API defines. Other flags have no variations of their own: those of their
    /// experiments have rows already.
    private static func flagRows(_ flag: FlagDefinition) -> [Row] {
        (flag.rules?.variations ?? []).map { variation in
            Row(
                name: Name(kind: "flag", id: flag.source.identifier("id") ?? flag.key, variation: variation.key),
                key: flag.key, label: flag.description, status: flag.isEnabled ? "enabled" : "disabled",
                variationKey: variation.key, value: String(decoding: variation.value.encoded(), as: UTF8.self))
        }
    }

    private func json(_ valid: ValidRow, until: Instant?) -> JSONObject {
        let row = valid.row
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
        object["valid_from"] = .string(valid.since.rfc3339)
        object["valid_to"] = until.map { .string($0.rfc3339) } ?? .null
        return object
    }
}
