import Bucketing
import JSON
import Storage

/// A response of `/edge/v1/definitions`: the data that all users share.
struct UpstreamDefinitions {
    let state: ProjectState
    /// The end of the upstream's feed after the definitions were read. The copy must have applied the feed up to this
    /// position before it activates the definitions; see ``DefinitionsFollower``.
    let feed: FeedCursor

    init(_ body: [UInt8]) throws(UpstreamError) {
        guard let object = (try? JSONParser().parse(body))?.object, let changes = object["changes"]?.integer,
            let newest = object["newest_datafile"]?.integer,
            let feed = object["feed"]?.string.flatMap({ FeedCursor($0) })
        else { throw .malformed("definitions must have `changes`, `newest_datafile` and `feed`") }
        state = ProjectState(
            changes: changes, projects: try Self.elements("projects", of: object, Self.project),
            newestDatafile: newest, datafiles: try Self.elements("datafiles", of: object, Self.datafile),
            forcedVariations: try Self.elements("forced_variations", of: object, Self.forcedVariation),
            schema: AttributeSchema(
                attributes: try Self.elements("attributes", of: object, Self.attribute),
                segments: try Self.elements("segments", of: object, Self.segment)))
        self.feed = feed
    }

    // MARK: Elements. Each function returns `nil` if a member is missing or has an unexpected type.

    private static func project(_ element: JSONObject) -> ProjectRecord? {
        guard let sdkKey = element["sdk_key"]?.string, let createdAt = element["created_at"]?.instant else {
            return nil
        }
        return ProjectRecord(
            sdkKey: sdkKey, name: element["name"]?.string ?? "", createdAt: createdAt,
            isDefault: element["is_default"]?.bool ?? false)
    }

    private static func attribute(_ element: JSONObject) -> AttributeDefinition? {
        guard let number = element["number"]?.integer.flatMap({ UInt32(exactly: $0) }),
            let name = element["name"]?.string, let text = element["definition"]?.string,
            let document = try? JSONParser().parse(text)
        else { return nil }
        return AttributeDefinition(name: Identifier(name), number: number, document: document)
    }

    private static func segment(_ element: JSONObject) -> Segment? {
        guard let name = element["name"]?.string, let text = element["conditions"]?.string else { return nil }
        let conditions = Segment.conditions(stored: text)
        return conditions.isNull ? nil : Segment(name: Identifier(name), conditions: conditions)
    }

    private static func forcedVariation(_ element: JSONObject) -> ForcedVariation? {
        guard let sdkKey = element["sdk_key"]?.string, let userID = element["user_id"]?.string,
            let experimentKey = element["experiment_key"]?.string,
            let variationKey = element["variation_key"]?.string
        else { return nil }
        return ForcedVariation(
            sdkKey: sdkKey, userID: Identifier(userID), experimentKey: Identifier(experimentKey),
            variationKey: Identifier(variationKey))
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

    /// Decodes the body of a datafile, in one of three forms:
    ///
    /// - `content`: the whole datafile.
    /// - `base` and `elements`: the parts of a datafile that is stored in parts.
    /// - `base`, `elements` and `removed`: the difference to the datafile that the edge has.
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

    /// Decodes an element of a datafile in parts.
    private static func part(_ object: JSONObject) -> DatafileParts.Element? {
        guard let name = partName(object), let position = object["position"]?.integer,
            let body = bytes("body", of: object)
        else { return nil }
        return DatafileParts.Element(name, position: position, body: body)
    }

    /// Decodes the name of an element.
    private static func partName(_ object: JSONObject) -> DatafileParts.Name? {
        guard let list = object["list"]?.string, let key = object["key"]?.string else { return nil }
        return DatafileParts.Name(list: Identifier(list), key: Identifier(key))
    }

    /// Decodes a member in base64url.
    private static func bytes(_ member: String, of object: JSONObject) -> [UInt8]? {
        object[member]?.string.flatMap { Base64URL.decode($0.utf8) }
    }

    /// Decodes a list, which must be present.
    ///
    /// - Parameter decode: returns `nil` for an element that is not complete.
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
