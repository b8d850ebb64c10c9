import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage
internal import Synchronization

/// `POST /v1/batch`: many operations in one request. They are begun in their order, and their answers stand in the order asked.
struct BatchEndpoint {
    let operations: [AgentOperation]
    let projects: ProjectView
    let gate: AccessGate
    /// Operations of one batch.
    var limit = 500

    func post(_ request: borrowing Request, _ call: Call) throws(AgentError) {
        let batch = try request.withBody { bytes throws(AgentError) in try self.batch(bytes) }
        let (origin, authorization) = (RequestOrigin(request), request.field("authorization"))
        let response = BatchResponse(batch, requestID: origin.id.description) { call.respond($0.httpResponse) }
        call.forEach(batch.indices) { index in
            guard !response.isFull else { return response.add(BatchResponse.notDone, at: index) }
            perform(batch[index], authorization, origin) { response.add($0, at: index) }
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

    /// - Parameters:
    ///   - authorization: that of the batch, for an operation without its own.
    ///   - origin: that of the batch.
    private func perform(
        _ asked: BatchOperation, _ authorization: String?, _ origin: RequestOrigin,
        _ receiver: @escaping AgentResponse.Receiver
    ) {
        guard let target = TargetText(asked.url) else { return receiver(AgentResponse(.badRequest)) }
        let candidates = operations.filter { $0.path.utf8.elementsEqual(target.path.utf8) }
        guard !candidates.isEmpty else { return receiver(AgentResponse(.notFound)) }
        guard let operation = candidates.first(where: { $0.method.name.description == asked.method }) else {
            return receiver(AgentResponse(.methodNotAllowed))
        }
        do throws(AgentError) {
            let admission: Admission
            do throws(AccessRefusal) {
                let secret = (asked.header("authorization") ?? authorization).flatMap(bearerSecret)
                admission = try gate.admit(secret: secret, to: operation.scope)
            } catch {
                gate.refusals.record(error, path: operation.path, method: operation.method, of: origin)
                throw AgentError(error.problem)
            }
            let caller = Caller(name: admission.token?.name, requestID: origin.id)
            operation.perform(try asked.request(target, operation.method, projects, from: caller), receiver)
        } catch {
            receiver(error.response)
        }
    }
}

/// One operation of a batch, as it is asked: a request with nothing but what it says itself.
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

    /// - Parameters:
    ///   - target: what ``url`` says.
    ///   - caller: who may do this, by which batch.
    func request(
        _ target: TargetText, _ method: Method, _ projects: ProjectView, from caller: Caller
    ) throws(AgentError) -> AgentRequest {
        let project = try projects.project(ofHeader: header("x-optimizely-sdk-key"))
        let query = AgentQuery(target.queryItems + parameters)
        guard method == .post else {
            return AgentRequest(project: project, query: query, body: .empty, caller: caller)
        }
        try AgentBody.checkContentType(header("content-type"))
        return AgentRequest(project: project, query: query, body: try AgentBody(body), caller: caller)
    }
}

/// The answers to a batch as they come in, from any thread.
final class BatchResponse: Sendable {
    private struct Entry {
        let response: AgentResponse
        let endedAt: Timestamp
    }

    private struct State {
        var entries: [Entry?]
        var missing: Int
        var bytes = 0
    }

    /// Bytes of all answers together; those beyond it are not kept.
    private static let byteLimit = 16 << 20
    private static let tooLong = AgentError(
        .unprocessableContent, "the answers of a batch must be together at most \(byteLimit) bytes long").response
    /// The answer to an operation behind that limit.
    static let notDone = AgentError(
        .unprocessableContent,
        "the answers of a batch must be together at most \(byteLimit) bytes long; this operation was not done").response

    private struct Question {
        let id: String
        let method: String
        let url: String
        let requestID: String
    }

    private let state: Mutex<State>
    private let questions: [Question]
    private let startedAt = systemWallClock()
    private let receiver: AgentResponse.Receiver

    /// - Parameter requestID: of the batch; operations may have their own.
    init(_ operations: [BatchOperation], requestID: String, _ receiver: @escaping AgentResponse.Receiver) {
        state = Mutex(State(entries: Array(repeating: nil, count: operations.count), missing: operations.count))
        questions = operations.map { operation in
            Question(
                id: operation.id, method: operation.method, url: operation.url,
                requestID: operation.header("x-request-id") ?? requestID)
        }
        self.receiver = receiver
        if operations.isEmpty { receiver(encode([])) }
    }

    /// Whether there is no room for another answer.
    var isFull: Bool { state.withLock { $0.bytes > Self.byteLimit } }

    func add(_ response: AgentResponse, at index: Int) {
        let endedAt = systemWallClock()
        let all = state.withLock { state in
            state.bytes += response.json.count
            let kept = state.bytes > Self.byteLimit ? Self.tooLong : response
            state.entries[index] = Entry(response: kept, endedAt: endedAt)
            state.missing -= 1
            return state.missing == 0 ? state.entries.compactMap(\.self) : nil
        }
        if let all { receiver(encode(all)) }
    }

    private func encode(_ entries: [Entry]) -> AgentResponse {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", systemWallClock().rfc3339)
        writer.member("errorCount", entries.count { $0.response.status != .ok })
        writer.key("response")
        writer.beginArray()
        for (question, entry) in zip(questions, entries) { append(question, entry, to: &writer) }
        writer.endArray()
        writer.endObject()
        return AgentResponse(.ok, writer)
    }

    private func append(_ question: Question, _ entry: Entry, to writer: inout JSONWriter) {
        let hasBody = !entry.response.json.isEmpty
        writer.beginObject()
        writer.member("status", entry.response.status.code)
        writer.member("requestID", hasBody ? question.requestID : "")
        writer.member("operationID", question.id)
        writer.member("method", question.method)
        writer.member("url", question.url)
        writer.key("body")
        if hasBody { writer.raw(entry.response.json.dropLast()) } else { writer.null() }
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", entry.endedAt.rfc3339)
        writer.endObject()
    }
}
