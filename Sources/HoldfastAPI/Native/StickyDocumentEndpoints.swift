import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/sticky`: the documents in which GrowthBook's SDKs keep the variations that they assigned.
struct StickyDocumentEndpoints {
    let store: any StickyDocumentStore

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.stickyKey()
        store.stickyDocuments([key]) { result in
            switch result.map(\.first) {
            case .success(.some(let document?)):
                let json = Self.encode(document)
                call.respond(json: json, entityTag: EntityTag(of: json))
            case .success: call.fail(Self.notFound)
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// Merges assignments into the document; with `?on_conflict=keep` stored ones win. Responds with the document after
    /// the change.
    func patch(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let key = try request.stickyKey()
        let rule = try Request.conflictRule(request.query(knowing: ["on_conflict"]))
        let assignments = try request.withBody { bytes throws(CoreError) in
            try StickyDocumentInput.assignments(JSONInput.parse(bytes), of: key)
        }
        store.submit(StickyDocumentChange(key: key, assignments: assignments, onConflict: rule)) { result in
            switch result {
            case .success(let document): call.respond(json: Self.encode(document))
            case .failure(.tooManyAssignments(let limit)):
                call.fail(
                    CoreError(
                        .unprocessable,
                        "a sticky document must have at most \(limit) assignments; the change adds too many",
                        at: ["assignments"]))
            case .failure(let error): call.fail(error)
            }
        }
    }

    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        store.removeStickyDocument(try request.stickyKey(), by: call.author(request)) { result in
            switch result {
            case .success(true): call.respond(Response(.noContent))
            case .success(false): call.fail(Self.notFound)
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// Responds with the documents that exist, in the order of the attributes.
    func postLookup(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let keys = try request.withBody { bytes throws(CoreError) in
            try StickyDocumentInput.lookup(JSONInput.parse(bytes))
        }
        store.stickyDocuments(keys) { result in
            switch result {
            case .success(let documents):
                var writer = JSONWriter()
                writer.beginObject()
                writer.key("documents")
                writer.beginArray()
                for document in documents { document.map { Self.append($0, to: &writer) } }
                writer.endArray()
                writer.endObject()
                call.respond(json: writer.finish())
            case .failure(let error):
                call.fail(error)
            }
        }
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
