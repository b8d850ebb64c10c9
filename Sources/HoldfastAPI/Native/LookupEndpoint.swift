import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/profiles/lookup`: the profiles of many users in one request.
struct LookupEndpoint {
    let reader: any ProfileStore
    /// The maximum number of user ids in one request.
    let limit: Int

    /// Responds with the profiles in the order of the ids, with `null` for a user without a profile.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let userIDs: [Identifier] = try request.withBody { bytes throws(CoreError) in try self.userIDs(bytes) }
        ProfileLookup(userIDs, reader).respond(call)
    }

    private func userIDs(_ bytes: UnsafeRawBufferPointer) throws(CoreError) -> [Identifier] {
        let place: JSONPointer = ["user_ids"]
        let object = try JSONInput.parse(bytes).object("a lookup", knowing: ["user_ids"])
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
final class ProfileLookup: ResponseStream {
    private let userIDs: [Identifier]
    private let reader: any ProfileStore
    private var json = JSONWriter()
    /// The index of the first user who has not been looked up.
    private var position = 0

    /// The length in bytes at which a piece is sent.
    private static let pieceLength = 128 * 1024
    /// The number of users to look up at a time.
    private var window = PageSize(atMost: 16)

    init(_ userIDs: [Identifier], _ reader: any ProfileStore) {
        self.userIDs = userIDs
        self.reader = reader
        json.beginObject()
        json.key("profiles")
        json.beginArray()
    }

    func respond(_ call: Call) {
        readPiece { [self] failure in
            if let failure {
                call.fail(failure)
            } else if position == userIDs.count {
                call.respond(json: json.take())
            } else {
                call.respond(Response(.ok, contentType: MediaType.json, body: .stream(self)))
            }
        }
    }

    func produce(_ writer: StreamWriter) {
        guard json.count == 0 else { return writer.write(json.take()) }
        guard position < userIDs.count else { return writer.finish() }
        readPiece { [self] failure in
            if let failure { return writer.fail(Problem(failure).response) }
            if position == userIDs.count { json.endLine() }
            writer.write(json.take())
        }
    }

    /// Continues to read until a piece is long enough or all is read.
    private func readPiece(_ completion: @escaping (StorageError?) -> Void) {
        let users = userIDs[position...].prefix(window.rows)
        let window = ProfileWindow(count: users.count) { [self] result in
            switch result {
            case .failure(let error):
                completion(error)
            case .success(let profiles):
                let former = json.count
                append(users, profiles)
                self.window.adjust(to: json.count - former)
                let isEnough = position == userIDs.count || json.count >= Self.pieceLength
                isEnough ? completion(nil) : readPiece(completion)
            }
        }
        for (index, userID) in users.enumerated() { reader.profile(of: userID) { window.add($0, at: index) } }
    }

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

/// Collects the profiles of some users, which the store returns in any order. A ``Join`` without its lock, because all
/// results arrive on the event loop.
private final class ProfileWindow {
    private var profiles: [ProfileRecord?]
    private var missing: Int
    private var failure: StorageError?
    private let completion: (Result<[ProfileRecord?], StorageError>) -> Void

    init(count: Int, _ completion: @escaping (Result<[ProfileRecord?], StorageError>) -> Void) {
        profiles = Array(repeating: nil, count: count)
        missing = count
        self.completion = completion
        if count == 0 { completion(.success([])) }
    }

    func add(_ result: Result<ProfileRecord?, StorageError>, at index: Int) {
        switch result {
        case .success(let profile): profiles[index] = profile
        case .failure(let error): failure = error
        }
        missing -= 1
        if missing == 0 { completion(failure.map { .failure($0) } ?? .success(profiles)) }
    }
}
