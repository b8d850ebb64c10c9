import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/sticky-values/{key}`: the objects in which Statsig's SDKs keep the variations that they assigned.
struct StickyValueEndpoints {
    let store: any StoreSession

    /// Responds with the objects of the key; 404 if there are none.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyValueKey()
        guard let document = try await store.read(.stickyDocuments([key])).compactMap(\.self).first else {
            throw Self.notFound
        }
        let json = JSONValue.object(StickyValueInput.values(of: document)).encoded()
        return .json(json, entityTag: EntityTag(of: json))
    }

    /// Replaces and removes the objects that the body names. Responds with all objects after the change.
    func patch(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyValueKey()
        let change = try request.withBody { bytes throws(CoreError) in
            try StickyValueInput.change(JSONInput.parse(bytes), of: key)
        }
        do throws(StorageError) {
            let document = try await store.write(.stickyDocument(change))
            return .json(.object(StickyValueInput.values(of: document)))
        } catch .tooManyAssignments(let limit) {
            throw CoreError(
                .unprocessable, "a key must have values of at most \(limit) configurations; the change adds too many",
                at: [])
        }
    }

    /// Deletes the objects of the key; 404 if there are none.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let key = try request.stickyValueKey()
        let author = call.author(request)
        guard try await store.write(.removeStickyDocument(key, by: author)) else { throw Self.notFound }
        return Response(.noContent)
    }

    private static let notFound = CoreError(.notFound, "nothing is stored for the key")
}

extension Request {
    /// Returns the `{key}` of the path.
    fileprivate func stickyValueKey() throws(CoreError) -> StickyDocumentKey {
        guard let text = parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        return try StickyValueInput.key(text)
    }
}
