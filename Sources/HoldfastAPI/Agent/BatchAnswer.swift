import Bucketing
import HTTPServer
import JSON
import Storage
internal import Synchronization

/// The answers to a batch as they come in, from any thread.
final class BatchAnswer: Sendable {
    private struct Entry {
        let answer: AgentAnswer
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
        .unprocessableContent, "the answers of a batch must be together at most \(byteLimit) bytes long").answer
    /// The answer to an operation behind that limit.
    static let notDone = AgentError(
        .unprocessableContent,
        "the answers of a batch must be together at most \(byteLimit) bytes long; this operation was not done").answer

    private struct Question {
        let id: String
        let method: String
        let url: String
        let requestID: String
    }

    private let state: Mutex<State>
    private let questions: [Question]
    private let startedAt = systemWallClock()
    private let receiver: AgentAnswer.Receiver

    /// - Parameter requestID: of the batch; operations may have their own.
    init(_ operations: [BatchOperation], requestID: String, _ receiver: @escaping AgentAnswer.Receiver) {
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

    func add(_ answer: AgentAnswer, at index: Int) {
        let endedAt = systemWallClock()
        let all = state.withLock { state in
            state.bytes += answer.json.count
            let kept = state.bytes > Self.byteLimit ? Self.tooLong : answer
            state.entries[index] = Entry(answer: kept, endedAt: endedAt)
            state.missing -= 1
            return state.missing == 0 ? state.entries.compactMap(\.self) : nil
        }
        if let all { receiver(encode(all)) }
    }

    private func encode(_ entries: [Entry]) -> AgentAnswer {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", systemWallClock().rfc3339)
        writer.member("errorCount", entries.count { $0.answer.status != .ok })
        writer.key("response")
        writer.beginArray()
        for (question, entry) in zip(questions, entries) { append(question, entry, to: &writer) }
        writer.endArray()
        writer.endObject()
        return AgentAnswer(.ok, writer)
    }

    private func append(_ question: Question, _ entry: Entry, to writer: inout JSONWriter) {
        let hasBody = !entry.answer.json.isEmpty
        writer.beginObject()
        writer.member("status", entry.answer.status.code)
        writer.member("requestID", hasBody ? question.requestID : "")
        writer.member("operationID", question.id)
        writer.member("method", question.method)
        writer.member("url", question.url)
        writer.key("body")
        if hasBody { writer.raw(entry.answer.json.dropLast()) } else { writer.null() }
        writer.member("startedAt", startedAt.rfc3339)
        writer.member("endedAt", entry.endedAt.rfc3339)
        writer.endObject()
    }
}
