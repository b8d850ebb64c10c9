import Bucketing
import HTTPServer
import JSON

/// `POST /v1/batch`: many operations in one request. They are begun in their order, and their answers stand in the order asked.
struct BatchEndpoint {
    let operations: [AgentOperation]
    let projects: ProjectView
    let gate: AccessGate
    /// Operations of one batch.
    var limit = 500

    func post(_ request: borrowing Request, _ call: Call) {
        do throws(AgentError) {
            let batch = try request.withBody { bytes throws(AgentError) in try self.batch(bytes) }
            let (origin, authorization) = (RequestOrigin(request), request.field("authorization"))
            let answer = BatchAnswer(batch, requestID: origin.id.description) { call.answer($0.response) }
            call.forEach(batch.indices) { index in
                guard !answer.isFull else { return answer.add(BatchAnswer.notDone, at: index) }
                perform(batch[index], authorization, origin) { answer.add($0, at: index) }
            }
        } catch {
            call.answer(error.answer.response)
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
        _ receiver: @escaping AgentAnswer.Receiver
    ) {
        guard let target = TargetText(asked.url) else { return receiver(AgentAnswer(.badRequest)) }
        let candidates = operations.filter { $0.path.utf8.elementsEqual(target.path.utf8) }
        guard !candidates.isEmpty else { return receiver(AgentAnswer(.notFound)) }
        guard let operation = candidates.first(where: { $0.method.name.description == asked.method }) else {
            return receiver(AgentAnswer(.methodNotAllowed))
        }
        do throws(AgentError) {
            let caller: Caller
            switch gate.admit(authorization: asked.header("authorization") ?? authorization, to: operation.scope) {
            case .success(let admission): caller = Caller(name: admission.token?.name, requestID: origin.id)
            case .failure(let refusal):
                gate.refusals.record(refusal, path: operation.path, method: operation.method, of: origin)
                throw AgentError(refusal.problem)
            }
            operation.perform(try asked.request(target, operation.method, projects, from: caller), receiver)
        } catch {
            receiver(error.answer)
        }
    }
}
