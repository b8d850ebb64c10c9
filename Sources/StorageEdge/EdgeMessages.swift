import Bucketing
import Chronology
import JSON
import Storage

// The messages about users that an edge receives from its upstream at /edge/v1/…; see the article Edge. The messages
// about definitions are in UpstreamDefinitions.swift.

/// A response of `/edge/v1/feed`: the lines of the upstream's feed after a position, and the position after these
/// lines.
///
/// The lines are JSON objects, for example:
///
/// ```
/// {"cursor": "…", "kind": "merge", "user_id": "account-7", "from": "device-12"}
/// {"cursor": "…", "kind": "end", "complete": true}
/// ```
struct FeedBatch {
    /// A change of one user.
    struct Line {
        /// The position in the feed after the line.
        let cursor: FeedCursor
        let userID: Identifier
        let change: MirroredChange
    }

    private(set) var lines: [Line] = []
    /// The position after the batch; `nil` if the upstream has sent none.
    private(set) var end: FeedCursor?
    /// Whether the feed had no further lines when it was read.
    var isComplete = false

    /// The maximum number of lines in a response.
    static let mostLines = 10_000
    /// The kinds of lines that an edge requests.
    static let kinds = "assignment,attributes,merge,erasure"

    /// Creates a batch without lines.
    init() {}

    /// Decodes all lines of a response.
    init(_ body: [UInt8]) throws(UpstreamError) {
        var rest = body
        try self.init(lines: &rest)
    }

    /// Decodes and removes the lines of a response.
    init(lines body: inout [UInt8]) throws(UpstreamError) {
        _ = try body.takeLines { line throws(UpstreamError) in
            try take(line)
            return true
        }
        guard end != nil else { throw .noResponse("the feed ended early") }
    }

    /// Decodes a line. The last line of a response has the kind `end`.
    private mutating func take(_ line: UnsafeRawBufferPointer) throws(UpstreamError) {
        guard let object = (try? JSONParser().parse(line))?.object,
            let cursor = object["cursor"]?.string.flatMap({ FeedCursor($0) }), let kind = object["kind"]?.string
        else { throw .malformed("a line of the feed must have a cursor and a kind") }
        if kind == "end" {
            end = cursor
            isComplete = object["complete"]?.bool ?? lines.isEmpty
            return
        }
        guard let userID = object["user_id"]?.string.map({ Identifier($0) }) else {
            throw .malformed("a line of the feed must have a user_id")
        }
        switch kind {
        case "assignment":
            let change = try Self.changeOfAssignment(object)
            lines.append(Line(cursor: cursor, userID: userID, change: change))
        case "attributes":
            // The upstream leaves out a damaged record.
            guard object["record"] != nil else { return }
            let record = try AttributeRecord(edge: object["record"], of: userID)
            lines.append(Line(cursor: cursor, userID: userID, change: .attributes(record)))
        case "erasure": lines.append(Line(cursor: cursor, userID: userID, change: .erasure))
        case "merge":
            guard let former = object["from"]?.string.map({ Identifier($0) }) else {
                throw .malformed("a merge must have a `from`")
            }
            lines.append(Line(cursor: cursor, userID: former, change: .merge(into: userID)))
        // Lines of a newer release, or of a kind that was not requested.
        default: break
        }
    }

    /// Decodes the change in a line of the kind `assignment`. A line without an experiment says only that the user has
    /// a profile. A line without a variation says that the assignment was removed.
    private static func changeOfAssignment(_ object: JSONObject) throws(UpstreamError) -> MirroredChange {
        guard let experimentID = object["experiment_id"]?.string.map({ Identifier($0) }) else { return .profile }
        let isRemoved = object["variation_id"]?.isNull ?? true
        return .assignment(experimentID: experimentID, isRemoved ? nil : try Assignment(edge: object))
    }
}

extension Assignment {
    /// Decodes an assignment with its metadata.
    fileprivate init(edge object: JSONObject) throws(UpstreamError) {
        func time(_ name: String) -> Instant? { object[name]?.string.flatMap { Instant(rfc3339: $0) } }
        guard let variationID = object["variation_id"]?.string, let name = object["source"]?.string,
            let source = Source.allCases.first(where: { $0.name == name }), let assignedAt = time("assigned_at"),
            let updatedAt = time("updated_at")
        else { throw .malformed("an assignment must have variation_id, source, assigned_at and updated_at") }
        var layer: OverrideLayer?
        if source == .override {
            let beneath = object["beneath"]?.object
            layer = OverrideLayer(
                author: object["author"]?.string, reason: object["reason"]?.string,
                beneath: try beneath.map { object throws(UpstreamError) in try Assignment(edge: object) })
        }
        self.init(
            variationID: Identifier(variationID), source: source, assignedAt: assignedAt, updatedAt: updatedAt,
            expiresAt: time("expires_at"), layer: layer)
    }
}

extension ProfileRecord {
    /// Decodes the bytes of a profile, which are in base64url.
    ///
    /// - Returns: `nil` if the user has no profile.
    /// - Throws: ``UpstreamError/damaged(_:)`` if the upstream's record is damaged; ``UpstreamError/malformed(_:)`` if
    ///   it is not in base64url or is of a newer release.
    init?(edge value: JSONValue?, of userID: Identifier) throws(UpstreamError) {
        guard let text = value?.string else { return nil }
        guard let bytes = Base64URL.decode(text.utf8) else { throw .malformed("a profile must be base64url") }
        do throws(ProfileRecordDamage) {
            try self.init(checking: bytes)
        } catch {
            if case .unknownVersion(let version) = error, version != 0 {
                throw .malformed("profiles are of a newer release: upgrade this edge")
            }
            throw .damaged("the stored profile of '\(userID)' is damaged: \(error)")
        }
    }
}

extension AttributeRecord {
    /// Decodes the bytes of attributes, which are in base64url.
    ///
    /// - Returns: `nil` if the user has no attributes.
    /// - Throws: ``UpstreamError/malformed(_:)`` if they cannot be decoded.
    init?(edge value: JSONValue?, of userID: Identifier) throws(UpstreamError) {
        guard let text = value?.string else { return nil }
        guard let bytes = Base64URL.decode(text.utf8), let record = AttributeRecord(checking: bytes) else {
            throw .malformed("attributes are damaged, or of a newer release: upgrade this edge")
        }
        self = record
    }
}

// MARK: Users

/// A line of a response of `/edge/v1/users` or `/edge/v1/lookup`.
enum UserLine {
    case user(MirroredUser)
    /// The upstream's records of the user are damaged.
    case damaged(Identifier, reason: String)
    /// The end of the response.
    ///
    /// - Parameter last: the last user of the response; `nil` if no more users follow.
    case end(last: Identifier?)

    /// Decodes a line.
    init(_ line: UnsafeRawBufferPointer) throws(UpstreamError) {
        guard let object = (try? JSONParser().parse(line))?.object else { throw .malformed("a user must be an object") }
        guard let text = object["user_id"]?.string else {
            guard let end = object["end"] else { throw .malformed("a user must have a user_id") }
            self = .end(last: end.string.map { Identifier($0) })
            return
        }
        let userID = Identifier(text)
        guard object["error"] == nil else {
            self = .damaged(userID, reason: object["reason"]?.string ?? "the stored data of '\(userID)' is damaged")
            return
        }
        do throws(UpstreamError) {
            self = .user(
                MirroredUser(
                    userID: userID, profile: try ProfileRecord(edge: object["profile"], of: userID),
                    attributes: try AttributeRecord(edge: object["attributes"], of: userID)))
        } catch .damaged(let reason) {
            self = .damaged(userID, reason: reason)
        }
    }
}
