import Bucketing
import JSON
import Storage

/// The messages of `/edge/v1/changes`, with which the ``Enroller`` asks the upstream to change profiles.
enum ChangeMessages {
    /// Encodes a request.
    ///
    /// - Parameters:
    ///   - position: the position of the copy in the feed. The response has the lines after it; `nil` for no lines.
    ///   - generation: the generation that the copy follows. The upstream refuses another one with 410.
    static func encode(
        _ changes: [ProfileChange], after position: FeedCursor?, _ generation: Int64?
    ) -> [UInt8] {
        var writer = JSONWriter(capacity: 64 + 192 * changes.count)
        writer.beginObject()
        writer.member("after", position?.text)
        writer.member("generation", generation.map { String($0, radix: 16) })
        writer.key("changes")
        writer.beginArray()
        for change in changes {
            writer.beginObject()
            writer.member("user_id", change.userID.string)
            writer.key("operation")
            change.operation.append(to: &writer)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    /// Decodes the results, one for each change in order.
    static func results(
        _ object: JSONObject?, of changes: [ProfileChange]
    ) throws(UpstreamError) -> [Result<ProfileChangeResult, StorageError>] {
        guard let list = object?["results"]?.array, list.count == changes.count else {
            throw .malformed("there must be a result for each change")
        }
        var results: [Result<ProfileChangeResult, StorageError>] = []
        for (value, change) in zip(list, changes) {
            guard let result = value.object else { throw .malformed("a result must be an object") }
            if let error = result["error"]?.string {
                results.append(.failure(StorageError(edge: error, result)))
                continue
            }
            results.append(
                .success(
                    ProfileChangeResult(
                        existed: result["existed"]?.bool ?? false, changed: result["changed"]?.bool ?? false,
                        profile: try ProfileRecord(edge: result["profile"], of: change.userID),
                        refused: (result["refused"]?.array ?? []).compactMap { $0.string.map { Identifier($0) } })))
        }
        return results
    }
}

extension StorageError {
    /// Decodes the error of a result.
    fileprivate init(edge name: String, _ object: JSONObject) {
        let reason = object["reason"]?.string ?? name
        self =
            switch name {
            case "too_many_assignments": .tooManyAssignments(limit: Int(object["limit"]?.integer ?? 0))
            case "overloaded": .overloaded
            case "stale_datafile": .staleDatafile
            case "damaged": .damaged(reason: reason)
            case "erased": .erased
            case "read_only": .readOnly
            default: .unavailable(reason: "the upstream refuses the change: \(reason)")
            }
    }
}

extension ProfileChange.Operation {
    /// Writes the operation as `/edge/v1/changes` expects it.
    fileprivate func append(to writer: inout JSONWriter) {
        func append(_ map: ExperimentBucketMap) {
            writer.key("map")
            writer.beginObject()
            for entry in map.entries {
                writer.key(text: entry.experimentID.string)
                writer.string(entry.variationID.string)
            }
            writer.endObject()
        }
        writer.beginObject()
        switch self {
        case .replace(let map):
            writer.member("kind", "replace")
            append(map)
        case .save(let map, let rule):
            writer.member("kind", "save")
            append(map)
            writer.member("on_conflict", rule == .keep ? "keep" : "replace")
        case .assign(let candidates, let version, let anonymousID):
            writer.member("kind", "assign")
            writer.key("proposals")
            writer.beginArray()
            for candidate in candidates {
                writer.beginObject()
                writer.member("experiment_id", candidate.experimentID.string)
                writer.member("variation_id", candidate.variationID.string)
                writer.member("replacing", candidate.replacing?.string)
                writer.member("is_from_anonymous_profile", candidate.isFromAnonymousProfile)
                writer.endObject()
            }
            writer.endArray()
            writer.member("decided_with", version)
            writer.member("anonymous_id", anonymousID?.string)
        // The ``Enroller`` sends no such operation.
        case .restore, .override, .remove, .erase, .eraseKeepingTotals: break
        }
        writer.endObject()
    }
}
