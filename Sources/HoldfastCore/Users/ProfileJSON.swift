public import Bucketing
import Chronology
public import Definitions
public import JSON
public import Storage

/// Encodes profiles as JSON directly from their stored form.
public enum ProfileJSON {
    /// Returns `{"user_id":…,"experiment_bucket_map":{…}}`. The map is empty if there is no profile.
    ///
    /// - Parameter detail: whether to write source and times of each assignment; see ``appendOrigin(_:to:)``.
    public static func encode(_ userID: Identifier, _ profile: ProfileRecord?, detail: Bool = false) -> [UInt8] {
        // The JSON of a profile is about twice as long as its stored form.
        var writer = JSONWriter(capacity: 64 + (profile?.bytes.count ?? 0) * 2)
        append(userID, profile, detail: detail, to: &writer)
        return writer.finish()
    }

    /// Writes the object that ``encode(_:_:detail:)`` returns.
    public static func append(
        _ userID: Identifier, _ profile: ProfileRecord?, detail: Bool = false, to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("user_id", userID.string)
        writer.key("experiment_bucket_map")
        writer.beginObject()
        if let profile {
            // Copies bytes from the record without creating strings, because every lookup runs this loop.
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

    /// Writes the source and times of an assignment. An override also has a reason, an author and the underlying
    /// assignment.
    public static func appendOrigin(_ assignment: Assignment, to writer: inout JSONWriter) {
        writer.member("source", assignment.source.name)
        writer.member("assigned_at", assignment.assignedAt.rfc3339)
        writer.member("updated_at", assignment.updatedAt.rfc3339)
        writer.member("expires_at", assignment.expiresAt?.rfc3339)
        guard assignment.source == .override else { return }
        writer.member("reason", assignment.layer?.reason)
        writer.member("author", assignment.layer?.author)
        writer.key("beneath")
        guard let beneath = assignment.layer?.beneath else { return writer.null() }
        writer.beginObject()
        writer.member("variation_id", beneath.variationID.string)
        appendOrigin(beneath, to: &writer)
        writer.endObject()
    }
}

/// Profiles as lines of NDJSON, for export and import.
public enum ProfileLine {
    /// Encodes one line, with its line feed.
    ///
    /// - Parameter detail: whether to write the origin of each assignment.
    public static func encode(_ userID: Identifier, _ profile: ProfileRecord, detail: Bool = false) -> [UInt8] {
        var bytes = ProfileJSON.encode(userID, profile, detail: detail)
        bytes.append(UInt8(ascii: "\n"))
        return bytes
    }

    /// Returns the change that saves the profile of a line; `nil` for a blank line.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public static func change(
        from line: UnsafeRawBufferPointer, onConflict rule: ProfileChange.ConflictRule
    ) throws(CoreError) -> ProfileChange? {
        LineSplitter.isBlank(line) ? nil : try ProfileInput(line: line).change(onConflict: rule)
    }
}
