import Bucketing
import JSON
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
        writer.member("user_id", userID.string)
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

    static func appendOrigin(_ assignment: Assignment, to writer: inout JSONWriter) {
        writer.member("source", assignment.source.name)
        writer.member("assigned_at", assignment.assignedAt.rfc3339)
        writer.member("updated_at", assignment.updatedAt.rfc3339)
        writer.member("expires_at", assignment.expiresAt?.rfc3339)
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
