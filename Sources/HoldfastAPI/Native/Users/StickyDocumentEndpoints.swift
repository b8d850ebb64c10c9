import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/sticky`: the documents in which GrowthBook's SDKs keep the variations that they assigned. A document belongs to
/// one value of an attribute, for example to the value `u-17` of `id`.
struct StickyDocumentEndpoints {
    let store: any StoreSession

    /// Responds with one document; 404 if there is none.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyKey()
        guard let document = try await store.read(.stickyDocuments([key])).compactMap(\.self).first else {
            throw Self.notFound
        }
        let json = Self.encode(document)
        return .json(json, entityTag: EntityTag(of: json))
    }

    /// Merges assignments into the document; with `?on_conflict=keep` stored ones win. Responds with the document after
    /// the change.
    func patch(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyKey()
        let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
        let assignments = try request.withBody { bytes throws(CoreError) in
            try StickyDocumentInput.assignments(JSONInput.parse(bytes), of: key)
        }
        let change = StickyDocumentChange(key: key, assignments: assignments, onConflict: rule)
        do throws(StorageError) {
            return .json(Self.encode(try await store.write(.stickyDocument(change))))
        } catch .tooManyAssignments(let limit) {
            throw CoreError(
                .unprocessable, "a sticky document must have at most \(limit) assignments; the change adds too many",
                at: ["assignments"])
        }
    }

    /// Deletes the document; 404 if there is none.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyKey()
        let author = call.author(request)
        guard try await store.write(.removeStickyDocument(key, by: author)) else { throw Self.notFound }
        return Response(.noContent)
    }

    /// Responds with the documents that exist, in the order of the attributes.
    func postLookup(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let keys = try request.withBody { bytes throws(CoreError) in
            try StickyDocumentInput.lookup(JSONInput.parse(bytes))
        }
        let documents = try await store.read(.stickyDocuments(keys))
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("documents")
        writer.beginArray()
        for case let document? in documents { Self.append(document, to: &writer) }
        writer.endArray()
        writer.endObject()
        return .json(writer.finish())
    }

    private static let notFound = CoreError(.notFound, "the attribute's value has no sticky document")

    private static func encode(_ document: StickyDocument) -> [UInt8] {
        var writer = JSONWriter()
        append(document, to: &writer)
        return writer.finish()
    }

    private static func append(_ document: StickyDocument, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("attributeName", document.key.attributeName.string)
        writer.member("attributeValue", document.key.attributeValue.string)
        writer.key("assignments")
        writer.value(document.content)
        writer.endObject()
    }
}

extension Request {
    /// Returns the `{attribute}` and `{value}` of the path.
    fileprivate func stickyKey() throws(CoreError) -> StickyDocumentKey {
        guard let name = parameter(0), let value = parameter(1) else {
            throw CoreError(.invalid, "the attribute and its value in the path must be UTF-8")
        }
        return try StickyDocumentInput.key(name, value)
    }
}
