import Bucketing
import Storage
import Tracing

/// A session of the store that records each operation as a span in the trace of its request. Servers without tracing
/// use the store's own session.
final class TracedSession: StoreSession {
    private let base: any StoreSession
    /// The name of the database in OpenTelemetry's conventions.
    private let system: String

    init(_ base: any StoreSession, system: String) {
        self.base = base
        self.system = system
    }

    func prepareLookups() throws(StorageError) { try base.prepareLookups() }
    func beginBatch() { base.beginBatch() }
    func endBatch() { base.endBatch() }
    var projectNotices: UInt64 { base.projectNotices }
    var cacheMetrics: CacheMetrics { base.cacheMetrics }
    func close() { base.close() }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        trace("profile", completion, { $0.failure }) { base.profile(of: userID, $0) }
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        trace("attributes", completion, { $0.failure }) { base.attributes(of: userID, $0) }
    }

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        trace("read \(nameOfCase(query.subject))", completion, { $0.failure }) { base.read(query, $0) }
    }

    func submit(_ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>) {
        trace(nameOfCase(change.operation), completion, { $0.failure }) { base.submit(change, by: author, $0) }
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        trace("change profiles", size: changes.count, completion, firstFailure) {
            base.submit(changes, by: author, $0)
        }
    }

    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        trace("record events", size: events.count, completion, { $0.failure }) { base.record(events, $0) }
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        trace("change users", size: changes.count, completion, firstFailure) { base.write(changes, $0) }
    }

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        trace("change definitions", completion, { $0.failure }) { base.write(change, $0) }
    }

    /// Performs an operation of the store in a span of its own, if the trace of the request is recorded. The completion
    /// runs in the span of the request again, so that spans which the completion begins become children of that span.
    ///
    /// - Parameters:
    ///   - size: the number of changes or events. The span has this attribute if it is greater than 1.
    ///   - failure: returns the error of the outcome, if any.
    ///   - work: performs the operation, and calls the completion that it is given.
    private func trace<Outcome>(
        _ operation: @autoclosure () -> String, size: Int = 1, _ completion: @escaping (Outcome) -> Void,
        _ failure: @escaping (Outcome) -> StorageError?, _ work: (@escaping (Outcome) -> Void) -> Void
    ) {
        guard let request = Span.current, request.context.isSampled else { return work(completion) }
        let span = request.child(.client)
        let name = operation()
        let system = self.system
        Span.with(span) {
            work { outcome in
                var attributes: Span.Attributes = [
                    ("db.system.name", .text(system)), ("db.operation.name", .text(name)),
                ]
                if size > 1 { attributes.append(("db.operation.batch.size", .number(size))) }
                span.end(name, attributes, error: failure(outcome).map { nameOfCase($0) })
                Span.with(request) { completion(outcome) }
            }
        }
    }
}

@available(*, unavailable) extension TracedSession: Sendable {}

extension Result {
    fileprivate var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}

private func firstFailure<Value>(_ results: [Result<Value, StorageError>]) -> StorageError? {
    results.lazy.compactMap(\.failure).first
}

/// Returns the name of a case without its values, which may be user ids.
private func nameOfCase(_ value: Any) -> String {
    Mirror(reflecting: value).children.first?.label ?? "\(value)"
}
