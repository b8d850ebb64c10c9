import Bucketing
import Chronology
import JSON
import Storage

// The messages between an edge and its upstream at /edge/v1/…; see the article Edge.

/// Lines of the upstream's feed after a place, and the place that they reach.
struct FeedBatch {
    struct Line {
        let cursor: FeedCursor
        let userID: Identifier
        let change: MirroredChange
    }

    private(set) var lines: [Line] = []
    private(set) var end: FeedCursor?
    /// Whether these were the last lines of the feed when it was read.
    var isComplete = false

    /// Nothing.
    init() {}

    mutating func take(_ line: UnsafeRawBufferPointer) throws(UpstreamError) {
        guard let object = (try? JSONParser().parse(line))?.object,
            let cursor = object["cursor"]?.string.flatMap({ FeedCursor($0) }), let kind = object["kind"]?.string
        else { throw .malformed("a line of the feed must have a cursor and a kind") }
        if kind == "end" {
            (end, isComplete) = (cursor, object["complete"]?.bool ?? lines.isEmpty)
            return
        }
        guard let userID = object["user_id"]?.string.map({ Identifier($0) }) else {
            throw .malformed("a line of the feed must have a user_id")
        }
        switch kind {
        case "assignment":
            guard let experimentID = object["experiment_id"]?.string.map({ Identifier($0) }) else {
                return lines.append(Line(cursor: cursor, userID: userID, change: .profile))
            }
            let isRemoved = object["variation_id"]?.isNull ?? true
            let assignment = isRemoved ? nil : try Assignment(edge: object)
            lines.append(
                Line(cursor: cursor, userID: userID, change: .assignment(experimentID: experimentID, assignment)))
        case "attributes":
            // The upstream leaves out a damaged record.
            guard object["record"] != nil else { return }
            let record = try AttributeRecord(edge: object["record"], of: userID)
            lines.append(Line(cursor: cursor, userID: userID, change: .attributes(record)))
        case "erasure": lines.append(Line(cursor: cursor, userID: userID, change: .erasure))
        case "merge":
            guard let other = object["from"]?.string.map({ Identifier($0) }) else {
                throw .malformed("a merge must have a `from`")
            }
            lines.append(Line(cursor: cursor, userID: other, change: .merge(into: userID)))
        // Lines of a newer release, or of a kind that was not requested.
        default: break
        }
    }

    /// Decodes all lines of a response.
    init(_ body: [UInt8]) throws(UpstreamError) {
        var rest = body
        try self.init(lines: &rest)
    }

    init(lines body: inout [UInt8]) throws(UpstreamError) {
        _ = try body.takeLines { line throws(UpstreamError) in
            try take(line)
            return true
        }
        guard end != nil else { throw .noResponse("the feed ended early") }
    }

    /// The kinds of lines that an edge needs.
    static let kinds = "assignment,attributes,merge,erasure"
}

extension Assignment {
    /// Decodes an assignment with its origin.
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
    init?(edge value: JSONValue?, of userID: Identifier) throws(UpstreamError) {
        guard let text = value?.string else { return nil }
        guard let bytes = Base64URL.decode(text.utf8), let record = AttributeRecord(checking: bytes) else {
            throw .malformed("attributes are damaged, or of a newer release: upgrade this edge")
        }
        self = record
    }
}

// MARK: Users

/// A line of `/edge/v1/users` or `/edge/v1/lookup`.
enum UserLine {
    case user(MirroredUser)
    /// The upstream cannot decode its records of the user.
    case damaged(Identifier, reason: String)
    /// - Parameter last: the last user of the response if more follow.
    case end(last: Identifier?)

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

// MARK: Definitions

/// A response of `/edge/v1/definitions`: everything that all users share, and the end of the feed after it was read.
struct UpstreamDefinitions {
    let state: ProjectState
    let feed: FeedCursor

    init(_ body: [UInt8]) throws(UpstreamError) {
        guard let object = (try? JSONParser().parse(body))?.object, let changes = object["changes"]?.integer,
            let newest = object["newest_datafile"]?.integer,
            let feed = object["feed"]?.string.flatMap({ FeedCursor($0) })
        else { throw .malformed("definitions must have `changes`, `newest_datafile` and `feed`") }
        let attributes: [AttributeDefinition] = try Self.elements("attributes", of: object) { element in
            guard let number = element["number"]?.integer.flatMap({ UInt32(exactly: $0) }),
                let name = element["name"]?.string, let text = element["definition"]?.string,
                let document = try? JSONParser().parse(text)
            else { return nil }
            return AttributeDefinition(name: Identifier(name), number: number, document: document)
        }
        let segments: [Segment] = try Self.elements("segments", of: object) { element in
            guard let name = element["name"]?.string, let text = element["conditions"]?.string else { return nil }
            let conditions = Segment.conditions(stored: text)
            return conditions.isNull ? nil : Segment(name: Identifier(name), conditions: conditions)
        }
        state = ProjectState(
            changes: changes,
            projects: try Self.elements("projects", of: object) { element in
                guard let sdkKey = element["sdk_key"]?.string, let createdAt = element["created_at"]?.instant else {
                    return nil
                }
                return ProjectRecord(
                    sdkKey: sdkKey, name: element["name"]?.string ?? "", createdAt: createdAt,
                    isDefault: element["is_default"]?.bool ?? false)
            },
            newestDatafile: newest, datafiles: try Self.elements("datafiles", of: object, Self.datafile),
            forcedVariations: try Self.elements("forced_variations", of: object) { element in
                guard let sdkKey = element["sdk_key"]?.string, let userID = element["user_id"]?.string,
                    let experimentKey = element["experiment_key"]?.string,
                    let variationKey = element["variation_key"]?.string
                else { return nil }
                return ForcedVariation(
                    sdkKey: sdkKey, userID: Identifier(userID), experimentKey: Identifier(experimentKey),
                    variationKey: Identifier(variationKey))
            },
            schema: AttributeSchema(attributes: attributes, segments: segments))
        self.feed = feed
    }

    private static func datafile(_ element: JSONObject) -> StoredDatafile? {
        guard let version = element["version"]?.integer, let sdkKey = element["sdk_key"]?.string,
            let revision = element["revision"]?.string, let storedAt = element["stored_at"]?.instant,
            let body = body(element)
        else { return nil }
        return StoredDatafile(
            version: version, sdkKey: sdkKey, revision: revision, body: body, storedAt: storedAt,
            author: element["author"]?.string ?? "")
    }

    private static func body(_ datafile: JSONObject) -> StoredDatafile.Body? {
        if let content = bytes("content", of: datafile) { return .whole(content) }
        guard let base = bytes("base", of: datafile),
            let elements: [DatafileParts.Element] = try? elements("elements", of: datafile, part)
        else { return nil }
        guard datafile["removed"] != nil else { return .parts(DatafileParts(base: base, elements: elements)) }
        guard let removed: [DatafileParts.Name] = try? Self.elements("removed", of: datafile, partName) else {
            return nil
        }
        return .change(DatafileParts.Change(base: base, removed: removed, put: elements))
    }

    private static func part(_ object: JSONObject) -> DatafileParts.Element? {
        guard let name = partName(object), let position = object["position"]?.integer,
            let body = bytes("body", of: object)
        else { return nil }
        return DatafileParts.Element(name, position: position, body: body)
    }

    private static func partName(_ object: JSONObject) -> DatafileParts.Name? {
        guard let list = object["list"]?.string, let key = object["key"]?.string else { return nil }
        return DatafileParts.Name(list: Identifier(list), key: Identifier(key))
    }

    private static func bytes(_ member: String, of object: JSONObject) -> [UInt8]? {
        object[member]?.string.flatMap { Base64URL.decode($0.utf8) }
    }

    private static func elements<Element>(
        _ name: String, of object: JSONObject, _ decode: (JSONObject) -> Element?
    ) throws(UpstreamError) -> [Element] {
        guard let list = object[name]?.array else { throw .malformed("definitions must have `\(name)`") }
        var elements: [Element] = []
        for value in list {
            guard let element = value.object.flatMap(decode) else {
                throw .malformed("an element of `\(name)` is not complete, or of a newer release: upgrade this edge")
            }
            elements.append(element)
        }
        return elements
    }
}
