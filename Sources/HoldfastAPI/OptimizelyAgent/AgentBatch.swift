import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage
internal import Synchronization

/// `POST /v1/batch`: many operations in one request. They start in their order, except those that wait for a definition,
/// and the responses are in the same order.
struct BatchEndpoint {
    let operations: [AgentOperation]
    let projects: ProjectView
    let gate: AccessGate
    /// The maximum number of operations in a batch.
    var limit = 500

    func post(_ request: borrowing Request, _ call: Call) throws(AgentError) {
        let batch = try request.withBody { bytes throws(AgentError) in try self.batch(bytes) }
        let origin = RequestOrigin(request)
        let own = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key"))
        let response = BatchResponse(batch, requestID: origin.id.description) { call.respond($0.httpResponse) }
        call.forEach(batch.indices) { index in
            guard !response.isFull else { return response.add(BatchResponse.notDone, at: index) }
            perform(batch[index], own, origin, call) { response.add($0, at: index) }
        }
    }

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

    /// Performs one operation of a batch, with its own check of token and scope.
    ///
    /// - Parameters:
    ///   - own: the secret of the batch, for an operation without one.
    ///   - origin: the origin of the batch.
    private func perform(
        _ requested: BatchOperation, _ own: Substring?, _ origin: RequestOrigin, _ call: Call,
        _ receiver: @escaping AgentResponse.Receiver
    ) {
        guard let target = TargetText(requested.url) else { return receiver(AgentResponse(.badRequest)) }
        let candidates = operations.filter { $0.path.utf8.elementsEqual(target.path.utf8) }
        guard !candidates.isEmpty else { return receiver(AgentResponse(.notFound)) }
        guard let operation = candidates.first(where: { $0.method.name.description == requested.method }) else {
            return receiver(AgentResponse(.methodNotAllowed))
        }
        do throws(AgentError) {
            let (authorization, apiKey) = (requested.header("authorization"), requested.header("x-api-key"))
            let isOwn = authorization == nil && apiKey == nil
            let secret = isOwn ? own : tokenSecret(authorization: authorization, apiKey: apiKey)
            let admission = try admit(secret, to: operation, of: origin)
            let caller = Caller(token: admission.token, requestID: origin.id)
            let request = try requested.request(
                target, operation.method, projects, from: caller, isUpToDate: call.isUpToDate)
            try operation.perform(request, receiver)
        } catch {
            guard error.concernsDefinitions, !call.isUpToDate else { return receiver(error.response) }
            call.updating(projects) { result in
                switch result {
                case .success(let call): perform(requested, own, origin, call, receiver)
                case .failure(let error): receiver(AgentError(error).response)
                }
            }
        }
    }

    private func admit(
        _ secret: Substring?, to operation: AgentOperation, of origin: RequestOrigin
    ) throws(AgentError) -> Admission {
        do throws(AccessRefusal) {
            return try gate.admit(
                secret: secret, to: .token(operation.scope), path: operation.path, method: operation.method, of: origin)
        } catch {
            throw AgentError(error.problem)
        }
    }
}

/// One requested operation of a batch. It inherits nothing from the batch but the authorization and the request id.
struct BatchOperation {
    let id: String
    let method: String
    let url: String
    let body: JSONValue
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
        let project = try projects.project(ofHeader: header("x-optimizely-sdk-key"))
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

/// Collects the responses to a batch from any thread, and completes the batch when the last one is there.
final class BatchResponse: Sendable {
    private struct Entry {
        let response: AgentResponse
        let endedAt: Timestamp
    }

    /// The maximum size of all responses together, in bytes; responses beyond it are dropped.
    private static let byteLimit = 16 << 20
    private static let tooLong = AgentError(
        .unprocessableContent, "the responses of a batch must be at most \(byteLimit) bytes together"
    ).response
    /// The response to an operation that is not performed because the limit was exceeded before.
    static let notDone = AgentError(
        .unprocessableContent,
        "the responses of a batch must be at most \(byteLimit) bytes together; this operation was not performed"
    ).response

    /// The members of an operation that its response repeats.
    private struct OperationHead {
        let id: String
        let method: String
        let url: String
        let requestID: String
    }

    private let entries: Join<Entry>
    /// The size of all responses so far.
    private let bytes = Atomic<Int>(0)

    /// - Parameter requestID: the batch's request id, for operations without one.
    init(_ operations: [BatchOperation], requestID: String, _ receiver: @escaping AgentResponse.Receiver) {
        let startedAt = systemWallClock()
        let heads = operations.map { operation in
            OperationHead(
                id: operation.id, method: operation.method, url: operation.url,
                requestID: operation.header("x-request-id") ?? requestID)
        }
        entries = Join(operations.count) { receiver(Self.encode(heads, $0, startedAt: startedAt)) }
    }

    /// Whether the limit is exceeded, so that further operations must not be performed.
    var isFull: Bool { bytes.load(ordering: .relaxed) > Self.byteLimit }

    func add(_ response: AgentResponse, at index: Int) {
        let total = bytes.add(response.json.count, ordering: .relaxed).newValue
        entries.set(
            Entry(response: total > Self.byteLimit ? Self.tooLong : response, endedAt: systemWallClock()), at: index)
    }

    private static func encode(_ operations: [OperationHead], _ entries: [Entry], startedAt: Timestamp) -> AgentResponse
    {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", systemWallClock().rfc3339)
        writer.member("errorCount", entries.count { $0.response.status != .ok })
        writer.key("response")
        writer.beginArray()
        for (operation, entry) in zip(operations, entries) {
            append(operation, entry, startedAt: startedAt, to: &writer)
        }
        writer.endArray()
        writer.endObject()
        return AgentResponse(.ok, writer)
    }

    private static func append(
        _ operation: OperationHead, _ entry: Entry, startedAt: Timestamp, to writer: inout JSONWriter
    ) {
        let hasBody = !entry.response.json.isEmpty
        writer.beginObject()
        writer.member("status", entry.response.status.code)
        writer.member("requestID", hasBody ? operation.requestID : "")
        writer.member("operationID", operation.id)
        writer.member("method", operation.method)
        writer.member("url", operation.url)
        writer.key("body")
        if hasBody { writer.raw(entry.response.json.dropLast()) } else { writer.null() }
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", entry.endedAt.rfc3339)
        writer.endObject()
    }
}
