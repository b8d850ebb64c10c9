import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/profiles/{user_id}/attributes`: the attributes of one user; `/v1/profiles/attributes`: sets the attributes of
/// many users.
///
/// Setting and reading require different scopes. A response shows whether a value has changed only to a caller who may
/// also read, because it would otherwise reveal the stored value.
struct UserAttributeEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    /// Responds with the attributes of one user, which may be none.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let record = try await completed { store.attributes(of: userID, $0) } ?? .empty
        var writer = JSONWriter(capacity: 512 + record.bytes.count + record.bytes.count / 8)
        writer.beginObject()
        writer.member("user_id", userID.string)
        writer.key("attributes")
        record.append(to: &writer, projects.schema)
        writer.endObject()
        return .json(writer.finish())
    }

    /// Sets the attributes in the body, all or none. Other attributes keep their values.
    func patch(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let schema = projects.schema
        let updates = try request.withBody { bytes throws(CoreError) in
            try AttributeInput(values: JSONInput.parse(bytes), schema: schema)
        }.updates
        let changed = try await submit(AttributeChange(userID: userID, operation: .update(updates)))
        services.attributeMetrics.count(changed: changed.count, of: updates.count)
        let unchanged = Set(updates.keys).subtracting(changed)
        return Self.response(
            userID, call, [("changed", schema.names(changed)), ("unchanged", schema.names(unchanged))])
    }

    /// Removes the attributes that the query names; without names, all attributes.
    func delete(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let schema = projects.schema
        let names = try Self.names(request)
        let operation: AttributeChange.Operation =
            names.isEmpty ? .removeAll : .update(try AttributeInput(removing: names, schema: schema).updates)
        let changed = try await submit(AttributeChange(userID: userID, operation: operation))
        services.attributeMetrics.count(changed: changed.count, of: changed.count)
        return Self.response(userID, call, [("removed", schema.names(changed))])
    }

    /// Returns the names of `?name=NAME&name=NAME`.
    private static func names(_ request: borrowing Request) throws(CoreError) -> [String] {
        guard request.hasQuery else { return [] }
        guard let items = request.queryItems() else { throw CoreError(.invalid, "the query must be UTF-8") }
        // A misspelt name must not erase everything.
        for item in items where item.name != "name" {
            throw CoreError(.invalid, "the query must have no parameters but `name`; got `\(item.name)`")
        }
        return items.map(\.value)
    }

    /// Stores a change.
    ///
    /// - Returns: the numbers of the attributes whose values changed.
    /// - Throws: 422 if an attribute was deleted during the request.
    private func submit(_ change: AttributeChange) async throws -> [UInt32] {
        switch try await store.write(.attributes(change)) {
        case .applied(let changed): return changed
        case .schemaHasChanged: throw CoreError.deletedAttribute
        }
    }

    /// Returns the response to a change.
    ///
    /// - Parameter members: the members for callers who may read.
    private static func response(
        _ userID: Identifier, _ call: Call, _ members: [(key: String, value: JSONValue)]
    ) -> Response {
        var response = JSONObject()
        response["user_id"] = .string(userID.string)
        for member in members where call.readsAttributes { response[member.key] = member.value }
        return .json(.object(response))
    }

    // MARK: Import

    /// Sets and removes attributes of a user with each line. The response has the number of imported lines, the number
    /// of lines that changed nothing, and the refused lines with the reasons.
    func importLines(_ request: borrowing Request, _ call: Call) -> any BodyReceiver {
        let projects = projects
        return LineImport(call: call, options: services.options, tellsUnchanged: call.readsAttributes) {
            line throws(CoreError) in
            try Self.change(from: line, projects.schema)
        } submit: { changes in
            await settled { store.write(changes.map { .attributes($0) }, $0) }.map(Self.outcome)
        }
    }

    /// Parses a line: `{"user_id","attributes"?,"remove"?}`.
    private static func change(
        from line: UnsafeRawBufferPointer, _ schema: AttributeSchema
    ) throws(CoreError) -> AttributeChange {
        let object = try JSONInput.parse(line, called: "the line")
            .object("a line", knowing: ["user_id", "attributes", "remove"])
        let userID = try ProfileInput.checkUserID(try object.text("user_id"), at: ["user_id"])
        let body = try AttributeInput(line: object, schema: schema)
        return AttributeChange(userID: userID, operation: .update(body.updates))
    }

    private static func outcome(_ result: Result<AttributeChangeResult, StorageError>) -> LineOutcome {
        switch result {
        case .success(.applied(let changed)): changed.isEmpty ? .unchanged : .changed
        case .success(.schemaHasChanged): .refused(.deletedAttribute)
        case .failure(let error): .init(error)
        }
    }
}

extension CoreError {
    fileprivate static let deletedAttribute = CoreError(
        .unprocessable, "one of the attributes was deleted during the request; nothing was stored")
}
