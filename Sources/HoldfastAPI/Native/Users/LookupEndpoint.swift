import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/profiles/lookup`: the profiles of many users in one request.
struct LookupEndpoint {
    let reader: any StoreSession
    /// The maximum number of user ids in one request.
    let limit: Int

    /// Responds with the profiles in the order of the ids, with `null` for a user without a profile.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userIDs = try userIDs(request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) })
        for userID in userIDs { try call.checkProfile(of: userID) }
        return try await ProfileLookup(userIDs, reader).response()
    }

    /// Parses the ids of a lookup.
    ///
    /// - Throws: 400 if the body is not `{"user_ids":[…]}`, has more than ``limit`` ids, or an id is invalid.
    func userIDs(_ body: JSONValue) throws(CoreError) -> [Identifier] {
        let place: JSONPointer = ["user_ids"]
        let object = try body.object("a lookup", knowing: ["user_ids"])
        guard let list = object["user_ids"]?.array else {
            let found = object["user_ids"]?.kind ?? "nothing"
            throw CoreError(.invalid, "`user_ids` must be an array of strings; got \(found)", at: place)
        }
        guard list.count <= limit else {
            throw CoreError(.invalid, "`user_ids` must have at most \(limit) elements; got \(list.count)", at: place)
        }
        var userIDs: [Identifier] = []
        userIDs.reserveCapacity(list.count)
        for (index, element) in list.enumerated() {
            let pointer = place.appending(index)
            guard let text = element.string else {
                throw CoreError(.invalid, "a user id must be a string; got \(element.kind)", at: pointer)
            }
            userIDs.append(try ProfileInput.checkUserID(text, at: pointer))
        }
        return userIDs
    }
}

/// The response to one lookup: `{"profiles":[…]}` in the order of the ids. A short response is sent in one piece. A
/// long one is read from the store while it is sent, so that only one piece is in memory. Belongs to one event loop.
final class ProfileLookup: StoredStream {
    private let userIDs: [Identifier]
    private let reader: any StoreSession
    private var json = JSONWriter()
    /// The index of the first user whose profile has not been read.
    private var position = 0

    /// The number of users whose profiles are read at a time.
    private var batchSize = PageSize(atMost: 16)

    /// The length in bytes at which a piece is sent.
    private static let pieceLength = 128 * 1024

    init(_ userIDs: [Identifier], _ reader: any StoreSession) {
        self.userIDs = userIDs
        self.reader = reader
        json.beginObject()
        json.key("profiles")
        json.beginArray()
    }

    /// Returns the response: the whole if it is short, or a stream.
    func response() async throws(StorageError) -> Response {
        try await readPiece()
        return position == userIDs.count
            ? .json(json.take()) : Response(.ok, contentType: MediaType.json, body: .stream(self))
    }

    func next() async throws -> [UInt8]? {
        if json.count == 0 {
            guard position < userIDs.count else { return nil }
            try await readPiece()
            if position == userIDs.count { json.endLine() }
        }
        return json.take()
    }

    /// Reads until a piece is long enough or all is read.
    private func readPiece() async throws(StorageError) {
        repeat {
            let users = userIDs[position...].prefix(batchSize.rows)
            let results = await settled(each: users) { reader.profile(of: $0, $1) }
            let profiles = try results.map { result throws(StorageError) in try result.get() }
            let lengthBefore = json.count
            append(users, profiles)
            batchSize.adjust(to: json.count - lengthBefore)
        } while position < userIDs.count && json.count < Self.pieceLength
    }

    /// Writes the profiles of some users; after the last user, also the end.
    private func append(_ users: ArraySlice<Identifier>, _ profiles: [ProfileRecord?]) {
        for (userID, profile) in zip(users, profiles) {
            if let profile { ProfileJSON.append(userID, profile, to: &json) } else { json.null() }
        }
        position += users.count
        guard position == userIDs.count else { return }
        json.endArray()
        json.endObject()
    }
}
