import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

extension Response {
    /// Returns a response with JSON, and a final line feed for terminals.
    static func json(_ json: consuming [UInt8], _ status: Status = .ok, entityTag: EntityTag? = nil) -> Response {
        json.append(UInt8(ascii: "\n"))
        return Response(status, contentType: MediaType.json, entityTag: entityTag, body: .bytes(json))
    }

    /// Returns a response with a JSON value.
    static func json(_ value: JSONValue, _ status: Status = .ok, entityTag: EntityTag? = nil) -> Response {
        json(value.encoded(), status, entityTag: entityTag)
    }

    /// Returns a response with JSON, or 304 if the caller's `If-None-Match` matches its entity tag. For methods other
    /// than `GET`, for which the server compares automatically.
    ///
    /// - Parameter entityTag: the entity tag; `nil` to compute it from the whole body.
    static func json(_ json: [UInt8], entityTag: EntityTag? = nil, ifNoneMatch: String?) -> Response {
        let tag = entityTag ?? EntityTag(of: json)
        if let ifNoneMatch, tag.isListed(in: ifNoneMatch) { return Response(.notModified, entityTag: tag) }
        return .json(json, entityTag: tag)
    }
}

extension Project {
    /// The entity tag of the datafile.
    var entityTag: EntityTag { EntityTag(contentHash) }
}

extension EntityTag {
    /// Creates the entity tag of a JSON text, without the line feed that `Response.json` appends.
    init(of json: [UInt8]) {
        self = json.withUnsafeBytes { EntityTag(hashing: $0) }
    }
}

/// The content types of several routes.
enum MediaType {
    static let json: StaticString = "application/json"
    static let problem: StaticString = "application/problem+json"
    static let lines: StaticString = "application/x-ndjson"
    static let events: StaticString = "text/event-stream"
}
