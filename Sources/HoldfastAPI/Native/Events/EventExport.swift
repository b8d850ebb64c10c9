import Bucketing
import HTTPServer
import JSON
import Storage

/// The lines of an export of events, read from the store page by page while they are sent.
final class EventExport: StoredStream {
    /// One page: its lines, and the number after which the next one begins.
    struct Page {
        let lines: [UInt8]
        let count: Int
        let last: Int64

        /// - Parameter last: the number of the last event; `nil` if there is none.
        init<Event>(_ events: [Event], last: Int64?, _ append: (Event, inout JSONWriter) -> Void) {
            var writer = JSONWriter()
            for event in events {
                append(event, &writer)
                writer.endLine()
            }
            lines = writer.finish()
            count = events.count
            self.last = last ?? 0
        }
    }

    /// Reads a page of at most `limit` events.
    typealias Source = (_ after: Int64, _ limit: Int) async throws(StorageError) -> Page

    /// The format of the export.
    private var form: ExportForm
    /// The number of the last event that was read.
    private var after: Int64
    /// The number of events that may still be exported until the limit is reached.
    private var remaining: Int
    private var pageSize: PageSize
    /// Whether the store has no further events.
    private var isAtEnd = false
    private let source: Source

    init(_ form: ExportForm, after: Int64, pageSize: Int, from source: @escaping Source) {
        self.form = form
        self.after = after
        remaining = form.limit
        self.pageSize = PageSize(atMost: pageSize)
        self.source = source
    }

    func next() async throws -> [UInt8]? {
        let count = isAtEnd ? 0 : min(pageSize.rows, remaining)
        guard count > 0 else { return try await end() }
        let page = try await source(after, count)
        isAtEnd = page.count < count
        remaining -= page.count
        pageSize.adjust(to: page.lines.count)
        guard page.count > 0 else { return try await end() }
        after = page.last
        return form.piece(page.lines)
    }

    /// Returns the end of a page in JSON, which says whether there is another page; `nil` for lines, which have no end.
    private func end() async throws(StorageError) -> [UInt8]? {
        guard form.awaitsEnd else { return nil }
        guard !isAtEnd else { return form.end(next: .null) }
        let page = try await source(after, 1)
        return form.end(next: page.count > 0 ? .integer(after) : .null)
    }
}
