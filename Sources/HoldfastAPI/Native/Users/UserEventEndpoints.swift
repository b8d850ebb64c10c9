import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/profiles/{user_id}/exposures` and `/events`: the exposures and goal events of one user, in pages, newest first
/// by the order in which they were stored.
struct UserEventEndpoints {
    let store: any StoreSession

    /// Responds with the first exposure to each experiment.
    func exposures(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let page = try Page(request)
        let found = try await store.read(.exposures(of: userID, before: page.before, limit: page.limit + 1))
        return page.response("exposures", found, \.number, EventLine.append) { call.access.allows($0.exposure.sdkKey) }
    }

    /// Responds with the goal events. Events without a project belong to all projects, so every caller may see them.
    func events(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let page = try Page(request)
        let found = try await store.read(.goalEvents(of: userID, before: page.before, limit: page.limit + 1))
        return page.response("events", found, \.number, EventLine.append) { stored in
            stored.event.sdkKey.isEmpty || call.access.allows(stored.event.sdkKey)
        }
    }

    /// The page of a query: `?after=`, with the `next` of an earlier response, and `&limit=`.
    private struct Page {
        /// The page has only events with smaller numbers. The numbers decrease in a response, so the events after the
        /// number `after` are those with smaller numbers.
        let before: Int64
        let limit: Int

        init(_ request: borrowing Request) throws(CoreError) {
            let query = try request.query(knowing: ["after", "limit"])
            limit = try Request.pageLimit(query)
            guard let after = query["after"] else {
                before = .max
                return
            }
            guard let number = Int64(after), number > 0 else {
                throw CoreError(.invalid, "`after` must be the `next` of an earlier response; got '\(after)'")
            }
            before = number
        }

        /// Returns the response with the events that were read.
        ///
        /// - Parameters:
        ///   - found: up to `limit` + 1 events. An event beyond `limit` is not in the response; it only shows that
        ///     there is another page.
        ///   - isShown: whether the caller may see the event. A page may thus have fewer than `limit` events.
        func response<Event>(
            _ name: StaticString, _ found: [Event], _ number: (Event) -> Int64,
            _ append: (Event, inout JSONWriter) -> Void, if isShown: (Event) -> Bool
        ) -> Response {
            let events = found.prefix(limit)
            var writer = JSONWriter()
            writer.beginObject()
            writer.key(name)
            writer.beginArray()
            for event in events where isShown(event) { append(event, &writer) }
            writer.endArray()
            writer.key("next")
            if let last = events.last, found.count > limit { writer.integer(number(last)) } else { writer.null() }
            writer.endObject()
            return .json(writer.finish())
        }
    }
}
