import Bucketing
import HTTPServer
import JSON
import Storage

/// The users of a segment as lines, found while they are sent. What is held in memory is one piece.
final class SegmentUsers: ResponseStream {
    private let services: Services
    private let matcher: SegmentMatcher
    private var after: Identifier?
    private var remaining: Int
    private var hasEnded = false

    init(services: Services, matcher: SegmentMatcher, after: Identifier?, limit: Int) {
        self.services = services
        self.matcher = matcher
        self.after = after
        remaining = limit
    }

    func produce(_ writer: StreamWriter) {
        guard remaining > 0, !hasEnded else { return writer.finish() }
        let handover = Handover(stream: self)
        services.attributes.scan(matcher, .users(after: after)) { result in
            switch result {
            case .success(let page): handover.stream.send(page, to: writer)
            case .failure(let error): writer.fail(Problem(error).response)
            }
        }
    }

    private func send(_ page: SegmentPage, to writer: StreamWriter) {
        services.attributeFigures.countScan(of: page.examined)
        let users = page.userIDs.prefix(remaining)
        remaining -= users.count
        after = page.last
        hasEnded = page.last == nil
        guard !users.isEmpty else { return writer.finish() }
        var lines = JSONWriter(capacity: users.count * 64)
        for userID in users {
            lines.beginObject()
            lines.member("user_id", userID.string)
            lines.endObject()
            lines.endLine()
        }
        writer.write(lines.finish())
    }
}

/// A stream as the store's completion holds it. Safe: nobody else uses it until the writer has its piece.
private struct Handover: @unchecked Sendable {
    let stream: SegmentUsers
}
