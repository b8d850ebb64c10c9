import Bucketing
public import Storage

/// Profiles as JSON, written byte by byte from the form in which they are stored.
enum ProfileJSON {
    /// `{"user_id":…,"experiment_bucket_map":{…}}`; the map is empty when there is no profile.
    static func encode(_ userID: Identifier, _ profile: ProfileRecord?, detail: Bool = false) -> [UInt8] {
        var writer = JSONWriter(capacity: 64 + (profile?.bytes.count ?? 0) * 2)
        append(userID, profile, detail: detail, to: &writer)
        return writer.finish()
    }

    static func append(
        _ userID: Identifier, _ profile: ProfileRecord?, detail: Bool = false, to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.key("user_id")
        writer.string(userID.string)
        writer.key("experiment_bucket_map")
        writer.beginObject()
        if let profile {
            // Straight from the record's bytes: this is what every lookup does.
            profile.bytes.withUnsafeBufferPointer { bytes in
                for entry in profile.entries {
                    writer.key(utf8: UnsafeBufferPointer(rebasing: bytes[entry.experimentID]))
                    writer.beginObject()
                    writer.key("variation_id")
                    writer.string(utf8: UnsafeBufferPointer(rebasing: bytes[entry.variationID]))
                    if detail { appendOrigin(profile.assignment(of: entry), to: &writer) }
                    writer.endObject()
                }
            }
        }
        writer.endObject()
        writer.endObject()
    }

    /// One assignment with its origin, as an object of its own.
    static func encode(_ experimentID: Identifier, _ assignment: Assignment) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("experiment_id")
        writer.string(experimentID.string)
        writer.key("variation_id")
        writer.string(assignment.variationID.string)
        appendOrigin(assignment, to: &writer)
        writer.endObject()
        return writer.finish()
    }

    private static func appendOrigin(_ assignment: Assignment, to writer: inout JSONWriter) {
        writer.key("source")
        writer.string(assignment.source.name)
        writer.key("assigned_at")
        writer.string(assignment.assignedAt.rfc3339)
        writer.key("updated_at")
        writer.string(assignment.updatedAt.rfc3339)
        writer.key("expires_at")
        if let expiresAt = assignment.expiresAt { writer.string(expiresAt.rfc3339) } else { writer.null() }
    }
}

extension Assignment.Source {
    /// As the API names it.
    public var name: String {
        switch self {
        case .saved: "saved"
        case .bucketed: "bucketed"
        case .override: "override"
        }
    }
}
