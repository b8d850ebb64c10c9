import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/batch`: many operations in one request. They start in the order of the request, except those that must
/// wait for newer definitions. The responses are in the order of the operations.
struct BatchEndpoint {
    let operations: [AgentOperation]
    let projects: ProjectView
    let gate: AccessGate
    /// Forwards operations that an edge cannot perform; `nil` if the server is not an edge.
    let forwarder: UpstreamForwarder?
    /// The maximum number of operations in a batch.
    var limit = 500

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let batch = try request.withBody { bytes throws(AgentError) in try self.batch(bytes) }
        let origin = RequestOrigin(request)
        let secret = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key"))
        let startedAt = systemWallClock()
        // The size in bytes of all responses so far.
        var bytes = 0
        let responses = try await call.map(batch.indices) { index async -> BatchResponse in
            guard bytes <= BatchResponse.byteLimit else { return BatchResponse(.notPerformed) }
            let response = await perform(batch[index], secret, origin, call)
            bytes += response.json.count
            return BatchResponse(bytes <= BatchResponse.byteLimit ? response : .beyondLimit)
        }
        return BatchResponse.encode(batch, responses, requestID: origin.id.description, startedAt: startedAt)
            .httpResponse
    }

    /// Parses the operations of a batch.
    private func batch(_ bytes: UnsafeRawBufferPointer) throws(AgentError) -> [BatchOperation] {
        let undecodable = AgentError(.badRequest, "cannot decode the operation body")
        guard !bytes.isEmpty else { throw undecodable }
        let list: [JSONValue]
        do throws(AgentError) {
            list = try AgentBody(bytes, contentType: "application/json").list("operations")
        } catch {
            throw undecodable
        }
        guard list.count <= limit else {
            throw AgentError(.unprocessableContent, "too many operations, exceeding \(limit) operations")
        }
        var batch: [BatchOperation] = []
        for element in list {
            do throws(AgentError) {
                batch.append(try BatchOperation(element))
            } catch {
                throw undecodable
            }
        }
        return batch
    }

    /// Performs one operation of a batch. Its token and scope are checked like those of a request of its own.
    ///
    /// - Parameters:
    ///   - batchSecret: the secret of the batch, for an operation without a secret of its own.
    ///   - origin: the origin of the batch.
    private func perform(
        _ requested: BatchOperation, _ batchSecret: Substring?, _ origin: RequestOrigin, _ call: Call
    ) async -> AgentResponse {
        guard let target = TargetText(requested.url) else { return AgentResponse(.badRequest) }
        let candidates = operations.filter { $0.path.utf8.elementsEqual(target.path.utf8) }
        guard !candidates.isEmpty else { return AgentResponse(.notFound) }
        guard let operation = candidates.first(where: { $0.method.name.description == requested.method }) else {
            return AgentResponse(.methodNotAllowed)
        }
        do {
            let authorization = requested.header("authorization")
            let apiKey = requested.header("x-api-key")
            let inheritsSecret = authorization == nil && apiKey == nil
            let secret = inheritsSecret ? batchSecret : tokenSecret(authorization: authorization, apiKey: apiKey)
            let forwarder = operation.isAnsweredByEdges ? nil : self.forwarder
            // Only the upstream checks the caller of a forwarded operation.
            let token = forwarder == nil ? try admit(secret, to: operation, of: origin).token : nil
            let caller = Caller(token: token, requestID: origin.id)
            return try await call.retrying(projects) { call in
                let request = try requested.request(
                    target, operation.method, projects, from: caller, isUpToDate: call.isUpToDate)
                guard let forwarder else { return try await operation.perform(request) }
                return try await forwarder.perform(operation, request, body: requested.body, credential: secret)
            }
        } catch {
            return AgentError(error).response
        }
    }

    /// Checks the token of one operation.
    private func admit(
        _ secret: Substring?, to operation: AgentOperation, of origin: RequestOrigin
    ) throws(AgentError) -> Admission {
        do throws(AccessRefusal) {
            return try gate.admitOperation(
                secret: secret, to: .token(operation.scope), path: operation.path, method: operation.method, of: origin)
        } catch {
            throw AgentError(error.problem)
        }
    }
}

extension UpstreamForwarder {
    /// Forwards an operation of a batch to the upstream, which also checks the caller.
    fileprivate func perform(
        _ operation: AgentOperation, _ request: AgentRequest, body: JSONValue, credential: Substring?
    ) async throws(Problem) -> AgentResponse {
        var fields = [
            ("Content-Type", "application/json"), ("X-Optimizely-SDK-Key", request.project.sdkKey),
            ("X-Request-Id", request.caller.requestID.description),
        ]
        if let credential {
            // The credential may come from JSON, and must not contain a line feed that ends the header field.
            guard credential.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
                throw Problem(.unauthorized, "the token must be printable ASCII without spaces")
            }
            fields.append(("Authorization", "Bearer \(credential)"))
        }
        let response = try await send(
            UpstreamRequest(
                method: operation.method.name.description, target: operation.path, fields: fields,
                body: body.encoded(), hasOwnToken: false, takesLong: false))
        guard let json = try? JSONParser().parse(response.body) else {
            throw Problem(.badGateway, "the upstream must respond with JSON; it responds \(response.status) without")
        }
        var writer = JSONWriter()
        writer.value(json)
        return AgentResponse(Status(code: UInt16(clamping: response.status)), writer)
    }
}

/// One requested operation of a batch. It inherits only the authorization and the request id from the batch.
struct BatchOperation {
    /// The `operationID` of the sender, which the response repeats.
    let id: String
    let method: String
    /// The path and query of the operation.
    let url: String
    /// The body; null if there is none.
    let body: JSONValue
    /// The `params`, which are added to the query of ``url``.
    let parameters: [(name: String, value: String)]
    private let headers: [(name: String, value: String)]

    init(_ value: JSONValue) throws(AgentError) {
        let operation = try AgentBody(value)
        id = try operation.text("operationID")
        let method = try operation.text("method")
        self.method = method.isEmpty ? "GET" : method
        url = try operation.text("url")
        body = try operation.object("body").map { .object($0) } ?? .null
        parameters = try operation.textMap("params")
        headers = try operation.textMap("headers")
    }

    /// Returns the value of a header field of the operation.
    ///
    /// - Parameter name: in lower case.
    func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name }?.value
    }

    /// Converts the operation to a request.
    ///
    /// - Parameters:
    ///   - target: the parsed ``url``.
    ///   - caller: the operation's token, and the request id of the batch.
    func request(
        _ target: TargetText, _ method: Method, _ projects: ProjectView, from caller: Caller, isUpToDate: Bool
    ) throws(AgentError) -> AgentRequest {
        let project = try projects.project(ofHeader: header("x-optimizely-sdk-key"), for: caller.access)
        let query = AgentQuery(target.queryItems + parameters)
        guard method == .post else {
            return AgentRequest(
                project: project, query: query, body: .empty, caller: caller, isUpToDate: isUpToDate)
        }
        try AgentBody.checkContentType(header("content-type"))
        return AgentRequest(
            project: project, query: query, body: try AgentBody(body), caller: caller, isUpToDate: isUpToDate)
    }
}

/// The response to one operation of a batch.
private struct BatchResponse: Sendable {
    /// The maximum size of all responses together, in bytes; responses beyond it are dropped.
    static let byteLimit = 16 << 20

    private let response: AgentResponse
    /// The time at which the operation ended.
    private let endedAt = systemWallClock()

    init(_ response: AgentResponse) {
        self.response = response
    }

    /// Returns the response to the whole batch.
    ///
    /// - Parameter requestID: the request id of the batch, for operations without one.
    static func encode(
        _ operations: [BatchOperation], _ responses: [BatchResponse], requestID: String, startedAt: Instant
    ) -> AgentResponse {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", systemWallClock().rfc3339)
        writer.member("errorCount", responses.count { $0.response.status != .ok })
        writer.key("response")
        writer.beginArray()
        for (operation, response) in zip(operations, responses) {
            response.append(to: &writer, operation, requestID: requestID, startedAt: startedAt)
        }
        writer.endArray()
        writer.endObject()
        return AgentResponse(.ok, writer)
    }

    private func append(
        to writer: inout JSONWriter, _ operation: BatchOperation, requestID: String, startedAt: Instant
    ) {
        let hasBody = !response.json.isEmpty
        writer.beginObject()
        writer.member("status", response.status.code)
        writer.member("requestID", hasBody ? operation.header("x-request-id") ?? requestID : "")
        writer.member("operationID", operation.id)
        writer.member("method", operation.method)
        writer.member("url", operation.url)
        writer.key("body")
        if hasBody { writer.raw(response.json.dropLast()) } else { writer.null() }
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", endedAt.rfc3339)
        writer.endObject()
    }
}

extension AgentResponse {
    /// The response to the operation whose response exceeds the limit.
    fileprivate static let beyondLimit = AgentError(
        .unprocessableContent, "the responses of a batch must be at most \(BatchResponse.byteLimit) bytes together"
    ).response
    /// The response to an operation that was not performed, because the previous responses exceeded the limit.
    fileprivate static let notPerformed = AgentError(
        .unprocessableContent,
        "the responses of a batch must be at most \(BatchResponse.byteLimit) bytes together; this operation was not performed"
    ).response
}
