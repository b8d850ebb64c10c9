import Bucketing
import HTTPServer
import JSON
import Storage

/// The events of one request as they become known, and then the answer to it. On the event loop of the request until
/// all are known.
final class EventAnswers {
    /// What one element of the body turned out to be.
    struct Item: Sendable {
        var id: Identifier?
        var event: Result<UserEvent, EventRefusal>
    }

    private let queue: EventQueue
    private let call: Call
    private let isArray: Bool
    private var items: [Item?]
    private var missing: Int

    init(count: Int, isArray: Bool, _ queue: EventQueue, _ call: Call) {
        self.queue = queue
        self.call = call
        self.isArray = isArray
        items = Array(repeating: nil, count: count)
        missing = count
        if count == 0 { finish() }
    }

    func add(_ event: Result<UserEvent, EventRefusal>, id: Identifier? = nil, at index: Int) {
        items[index] = Item(id: id, event: event)
        missing -= 1
        if missing == 0 { finish() }
    }

    private func finish() {
        let items = items.compactMap { $0 }
        let events = items.compactMap { try? $0.event.get() }
        if !isArray, let item = items.first, case .failure(let refusal) = item.event {
            return call.fail(refusal.problem)
        }
        queue.record(events) { [call, isArray] result in
            switch result {
            case .success(let outcomes): call.answer(json: Self.encode(items, outcomes, isArray: isArray))
            case .failure(let error): call.fail(error)
            }
        }
    }

    private static func encode(_ items: [Item], _ outcomes: [EventOutcome], isArray: Bool) -> [UInt8] {
        var writer = JSONWriter()
        if isArray {
            writer.beginObject()
            writer.key("results")
            writer.beginArray()
        }
        var outcomes = outcomes.makeIterator()
        for (index, item) in items.enumerated() {
            writer.beginObject()
            if isArray {
                writer.member("index", index)
            }
            if let id = item.id { writer.member("id", id.string) }
            switch item.event {
            case .success:
                writer.member("status", outcomes.next() == .repeated ? "repeated" : "stored")
            case .failure(let refusal):
                writer.member("status", "refused")
                writer.member("retriable", refusal.isRetriable)
                writer.key("problem")
                refusal.problem.append(to: &writer)
            }
            writer.endObject()
        }
        if isArray {
            writer.endArray()
            writer.endObject()
        }
        return writer.finish()
    }
}

@available(*, unavailable) extension EventAnswers: Sendable {}
