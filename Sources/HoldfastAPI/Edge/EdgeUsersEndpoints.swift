import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Responds with users and their stored records, one JSON object per line; see ``Storage/UserRecordLines``.
struct EdgeUsersEndpoints {
    let store: any StoreSession

    /// `GET /edge/v1/users`: all users in the byte order of their ids. `?after=USER_ID` resumes after a user,
    /// `?limit=N` ends after about N users. The last line is `{"end":USER_ID}`. A request with this id as `after`
    /// returns the rest. The id is `null` if there is no rest.
    func list(_ request: borrowing Request, _ call: Call) throws -> Response {
        let query = try request.query(knowing: ["after", "limit"])
        let after = try query["after"].map { text throws(CoreError) in try ProfileInput.checkUserID(text, at: nil) }
        return call.response(
            MediaType.lines, stream: UserCopy(store, after: after, limit: try Request.limit(query)))
    }

    /// `POST /edge/v1/lookup` with `{"user_ids":[…]}`: a line for each user in the order of the ids, in the format of
    /// ``list(_:_:)``, without expired assignments. A user with damaged records has `error` and `reason` instead.
    func postLookup(_ body: [UInt8], _ call: Call) async throws -> Response {
        let lookup = LookupEndpoint(reader: store, limit: EdgeProtocol.maximumElements)
        let users = try lookup.userIDs(try JSONInput.parse(body))
        let profiles = await settled(each: users) { store.profile(of: $0, $1) }
        let attributes = await settled(each: users) { store.attributes(of: $0, $1) }
        var writer = JSONWriter(capacity: users.count * 128)
        for (index, userID) in users.enumerated() {
            do throws(StorageError) {
                UserRecordLines.append(userID, try profiles[index].get(), try attributes[index].get(), to: &writer)
            } catch .damaged(let reason) {
                writer.beginObject()
                writer.member("user_id", userID.string)
                writer.member("error", "damaged")
                writer.member("reason", reason)
                writer.endObject()
                writer.endLine()
            }
        }
        return Response(.ok, contentType: MediaType.lines, body: .bytes(writer.finish()))
    }
}

/// All users, read page by page and encoded off the event loop while they are sent.
private final class UserCopy: StoredStream {
    private let store: any StoreSession
    /// The user after whom the next page begins; `nil` for the first user.
    private var after: Identifier?
    /// About the number of rows up to the limit of the request.
    private var remaining: Int
    private var hasEnded = false
    private var pageSize = PageSize(atMost: maximumRows)

    /// The maximum number of rows that are read at once.
    private static let maximumRows = 2_048
    /// The minimum number of rows that the query accepts.
    private static let minimumRows = 3

    init(_ store: any StoreSession, after: Identifier?, limit: Int) {
        self.store = store
        self.after = after
        remaining = limit
    }

    func next() async throws -> [UInt8]? {
        guard !hasEnded else { return nil }
        guard remaining > 0 else { return end(after) }
        let limit = max(Self.minimumRows, min(pageSize.rows, remaining))
        let page = try await store.read(.userRecords(after: after, limit: limit))
        remaining -= page.count
        pageSize.adjust(to: page.lines.count)
        guard let end = page.end else { return page.lines + self.end(nil) }
        after = end
        return page.lines
    }

    /// Returns the last line.
    ///
    /// - Parameter next: the user after whom the rest begins; `nil` if there is no rest.
    private func end(_ next: Identifier?) -> [UInt8] {
        hasEnded = true
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("end", next?.string)
        writer.endObject()
        writer.endLine()
        return writer.finish()
    }
}
