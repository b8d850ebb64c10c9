import Dispatch
import HTTPServer
import Storage
internal import Synchronization

/// The lines of an export of events, read from the store page by page while they are sent, away from event loops.
final class EventExport: ResponseStream, Sendable {
    /// One page: its lines, and where the next begins.
    struct Page {
        let lines: [UInt8]
        let count: Int
        let last: Int64
    }

    typealias Source = @Sendable (_ after: Int64, _ limit: Int) throws(StorageError) -> Page

    private struct State {
        var after: Int64
        var remaining: Int
        var pageSize: PageSize
    }

    private let state: Mutex<State>
    private let queue: DispatchQueue
    private let source: Source

    init(after: Int64, limit: Int, pageSize: Int, on queue: DispatchQueue, from source: @escaping Source) {
        state = Mutex(State(after: after, remaining: limit, pageSize: PageSize(atMost: pageSize)))
        self.queue = queue
        self.source = source
    }

    func produce(_ writer: StreamWriter) {
        queue.async { [self] in
            let (after, count) = state.withLock { ($0.after, min($0.pageSize.rows, $0.remaining)) }
            guard count > 0 else { return writer.finish() }
            do throws(StorageError) {
                let page = try source(after, count)
                guard page.count > 0 else { return writer.finish() }
                state.withLock { state in
                    state.after = page.last
                    state.remaining -= page.count
                    state.pageSize.adjust(to: page.lines.count)
                }
                writer.write(page.lines)
            } catch {
                writer.fail(Problem(error).response)
            }
        }
    }
}
