import Bucketing
import HoldfastCore
import JSON

extension ExperimentPreview {
    /// The response of `POST /v1/experiments/{key}/preview`.
    ///
    /// - Parameter description: the experiment as `GET` would show it after the change.
    func json(_ counts: PreviewCounter.Counts, after description: JSONValue) -> JSONValue {
        let moves = moves.map { move -> JSONValue in
            [
                "from": move.from.map { .string($0.string) } ?? .null,
                "to": move.to.map { .string($0.string) } ?? .null,
                "share": .number(move.share),
            ]
        }
        let enrolled = counts.enrolled
        let warnings = warnings(hasUsers: enrolled.users > 0 || counts.exposed > 0).map { warning -> JSONValue in
            ["code": .string(warning.rawValue), "message": .string(warning.message)]
        }
        return [
            "experiment": description, "creates": .bool(former == nil),
            "new_users": ["changed": .number(changedShare), "moves": .array(moves)],
            "audience_changed": .bool(changesAudience),
            "enrolled": [
                "users": .integer(Int64(enrolled.users)), "keep": .integer(Int64(enrolled.keep)),
                "change": .integer(Int64(enrolled.change)), "lose": .integer(Int64(enrolled.lose)),
                "gain": .integer(Int64(enrolled.gain)), "exposed": .integer(Int64(counts.exposed)),
            ],
            "warnings": .array(warnings),
        ]
    }
}
