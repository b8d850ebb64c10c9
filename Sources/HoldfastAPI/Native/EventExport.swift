import Bucketing
import Dispatch
import HTTPServer
import JSON
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
        var form: ExportForm
        var after: Int64
        var remaining: Int
        var pageSize: PageSize
        var isAtEnd = false
    }

    private let state: Mutex<State>
    private let queue: DispatchQueue
    private let source: Source

    init(
        _ form: ExportForm, after: Int64, pageSize: Int, on queue: DispatchQueue, from source: @escaping Source
    ) {
        state = Mutex(
            State(form: form, after: after, remaining: form.limit, pageSize: PageSize(atMost: pageSize)))
        self.queue = queue
        self.source = source
    }

    func produce(_ writer: StreamWriter) {
        queue.async { [self] in
            let (after, count) = state.withLock { ($0.after, $0.isAtEnd ? 0 : min($0.pageSize.rows, $0.remaining)) }
            guard count > 0 else { return finish(writer) }
            do throws(StorageError) {
                let page = try source(after, count)
                let piece = state.withLock { state in
                    state.isAtEnd = page.count < count
                    state.remaining -= page.count
                    state.pageSize.adjust(to: page.lines.count)
                    if page.count > 0 { state.after = page.last }
                    return page.count > 0 ? state.form.piece(page.lines) : nil
                }
                if let piece { writer.write(piece) } else { finish(writer) }
            } catch {
                writer.fail(Problem(error).response)
            }
        }
    }

    private func finish(_ writer: StreamWriter) {
        do throws(StorageError) {
            let (after, awaitsEnd, isAtEnd) = state.withLock { ($0.after, $0.form.awaitsEnd, $0.isAtEnd) }
            guard awaitsEnd else { return writer.finish() }
            let hasMore = isAtEnd ? false : try source(after, 1).count > 0
            let end = state.withLock { $0.form.end(next: hasMore ? .integer(after) : .null) }
            writer.write(end)
        } catch {
            writer.fail(Problem(error).response)
        }
    }
}

/// Events as lines of NDJSON. `cursor` is what a reader resumes after; `detail` is what else was recorded.
enum EventLine {
    static func append(_ stored: StoredExposure, to writer: inout JSONWriter) {
        let exposure = stored.exposure
        writer.beginObject()
        writer.member("cursor", stored.number)
        writer.member("user_id", exposure.userID.string)
        writer.member("experiment_id", exposure.experimentID.string)
        writer.member("experiment_key", exposure.experimentKey.string)
        writer.member("variation_id", exposure.variationID.string)
        writer.member("timestamp", exposure.happenedAt.rfc3339)
        writer.member("crossed", stored.isCrossed)
        writer.member("forced", exposure.isForced)
        end(exposure.sdkKey, exposure.payload, &writer)
    }

    static func append(_ stored: StoredGoalEvent, to writer: inout JSONWriter) {
        let event = stored.event
        writer.beginObject()
        writer.member("cursor", stored.number)
        if let id = event.senderID { writer.member("id", id.string) }
        writer.member("user_id", event.userID.string)
        writer.member("goal", event.goal.string)
        writer.key("value")
        writer.number(event.value)
        writer.member("timestamp", event.happenedAt.rfc3339)
        writer.member("received_at", event.receivedAt.rfc3339)
        end(event.sdkKey, event.payload, &writer)
    }

    private static func end(_ sdkKey: String, _ payload: [UInt8], _ writer: inout JSONWriter) {
        if !sdkKey.isEmpty { writer.member("sdk_key", sdkKey) }
        writer.key("detail")
        writer.raw(payload)
        writer.endObject()
        writer.endLine()
    }
}
