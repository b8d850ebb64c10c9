public import Bucketing
public import Chronology
public import JSON
public import Storage

/// The kinds of changes in the feed. A request chooses some of them by their names.
public enum FeedKind: String, Sendable, CaseIterable {
    case assignment, exposure, goal, attributes, merge, erasure

    /// An empty profile is of the kind ``assignment``: the user has no assignments any more.
    public init(_ change: FeedEntry.Change) {
        switch change {
        case .assignment, .emptyProfile: self = .assignment
        case .exposure: self = .exposure
        case .goal: self = .goal
        case .attributes: self = .attributes
        case .merge: self = .merge
        case .erasure: self = .erasure
        }
    }
}

/// Writes the lines of the feed as NDJSON: one JSON object per change.
public enum FeedLine {
    /// Writes a line with its line feed.
    ///
    /// - Parameters:
    ///   - entry: the change.
    ///   - time: when the change was recorded; `nil` if the line does not come from a feed.
    ///   - cursor: the cursor after the line; `nil` if the line does not come from a feed.
    ///   - schema: the names of the attributes.
    ///   - records: the stored attributes of users, for edges; a user without a key has no member `record`.
    public static func append(
        _ entry: FeedEntry, at time: Instant?, cursor: FeedCursor?, _ schema: AttributeSchema,
        records: [Identifier: AttributeRecord?] = [:], to writer: inout JSONWriter
    ) {
        writer.beginObject()
        if let cursor { writer.member("cursor", cursor.text) }
        writer.member("kind", FeedKind(entry.change).rawValue)
        if let time { writer.member("at", time.rfc3339) }
        writer.member("user_id", entry.userID.string)
        switch entry.change {
        case .assignment(let experimentID, let assignment):
            writer.member("experiment_id", experimentID.string)
            writer.member("variation_id", assignment?.variationID.string)
            if let assignment { ProfileJSON.appendOrigin(assignment, to: &writer) }
        case .emptyProfile:
            writer.member("experiment_id", String?.none)
            writer.member("variation_id", String?.none)
        case .exposure(let stored): EventLine.appendMembers(of: stored, to: &writer)
        case .goal(let event):
            if let id = event.senderID { writer.member("id", id.string) }
            EventLine.appendMembers(of: event, to: &writer)
        case .attributes(let numbers):
            writer.key("attributes")
            writer.beginArray()
            // An attribute that was deleted since is left out.
            for definition in schema.attributes where numbers.contains(definition.number) {
                writer.string(definition.name.string)
            }
            writer.endArray()
            if let record = records[entry.userID] { writer.member("record", base64URL: record?.bytes) }
        case .merge(let other): writer.member("from", other.string)
        case .erasure: break
        }
        writer.endObject()
        writer.endLine()
    }

    /// Writes the last line of a response.
    ///
    /// - Parameters:
    ///   - cursor: the cursor at which the next request continues. It is also after changes of other kinds than the
    ///     requested ones, so that they are not read again.
    ///   - isComplete: whether the response has all changes that were committed; `nil` except for edges.
    public static func appendEnd(_ cursor: FeedCursor, isComplete: Bool? = nil, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("cursor", cursor.text)
        writer.member("kind", "end")
        if let isComplete { writer.member("complete", isComplete) }
        writer.endObject()
        writer.endLine()
    }
}
