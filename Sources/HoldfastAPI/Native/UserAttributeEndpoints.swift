import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/profiles/{user_id}/attributes`: the attributes of one user, and of many in one request. Setting and reading
/// them require different scopes: only a caller who may read is told whether a value was stored before.
struct UserAttributeEndpoints {
    let services: Services
    let store: any AttributeStore
    let projects: ProjectView

    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let schema = projects.schema
        store.attributes(of: userID) { result in
            switch result {
            case .success(let record):
                let record = record ?? .empty
                var writer = JSONWriter(capacity: 512 + record.bytes.count + record.bytes.count / 8)
                writer.beginObject()
                writer.member("user_id", userID.string)
                writer.key("attributes")
                record.append(to: &writer, schema)
                writer.endObject()
                call.respond(json: writer.finish())
            case .failure(let error):
                call.fail(error)
            }
        }
    }

    /// Sets the attributes that the body names, all or none, and leaves the others.
    func patch(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let schema = projects.schema
        let body = try request.withBody { bytes throws(CoreError) in
            try AttributeInput(values: JSONInput.parse(bytes), schema: schema)
        }
        submit(AttributeChange(userID: userID, operation: .update(body.updates)), call) { [services] changed in
            services.attributeMetrics.count(changed: changed.count, of: body.updates.count)
            return [
                ("changed", schema.names(changed)),
                ("unchanged", schema.names(Set(body.updates.keys).subtracting(changed))),
            ]
        }
    }

    /// Removes the attributes that the query names, or all.
    func delete(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userID = try request.userID()
        let schema = projects.schema
        let names = try Self.names(request)
        let operation: AttributeChange.Operation =
            names.isEmpty ? .removeAll : .update(try AttributeInput(removing: names, schema: schema).updates)
        submit(AttributeChange(userID: userID, operation: operation), call) { [services] changed in
            services.attributeMetrics.count(changed: changed.count, of: changed.count)
            return [("removed", schema.names(changed))]
        }
    }

    private static func names(_ request: borrowing Request) throws(CoreError) -> [String] {
        guard request.hasQuery else { return [] }
        guard let items = request.queryItems() else { throw CoreError(.invalid, "the query must be UTF-8") }
        // A misspelt name must not erase everything.
        for item in items where item.name != "name" {
            throw CoreError(.invalid, "the query must have no parameters but `name`; got `\(item.name)`")
        }
        return items.map(\.value)
    }

    /// - Parameter outcome: counts the change, and returns the members of the response for callers who may read.
    private func submit(
        _ change: AttributeChange, _ call: Call,
        outcome: @escaping @Sendable (_ changed: [UInt32]) -> [(key: String, value: JSONValue)]
    ) {
        store.submit(change) { result in
            switch result {
            case .success(.applied(let changed)):
                var response = JSONObject()
                response["user_id"] = .string(change.userID.string)
                for member in outcome(changed) where call.readsAttributes { response[member.key] = member.value }
                call.respond(json: JSONValue.object(response).encoded())
            case .success(.schemaHasChanged): call.fail(CoreError.deletedAttribute)
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// Sets and removes attributes of a user with each line. The response has the numbers of imported lines and of
    /// those that changed nothing, and the refused lines with the reasons.
    func importLines(_ request: borrowing Request, _ call: Call) -> any BodyReceiver {
        let projects = projects
        return LineImport(call: call, options: services.options, tellsUnchanged: call.readsAttributes) {
            line throws(CoreError) in
            try Self.change(from: line, projects.schema)
        } submit: { [store] changes, finished in
            store.submit(changes) { finished($0.map(Self.outcome)) }
        }
    }

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
