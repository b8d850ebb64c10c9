import Bucketing
import HTTPServer
import JSON
import Storage

/// The answer to one lookup: `{"profiles":[…]}` in the order asked. A short one is answered at once; a long one is read
/// from the store while it is sent, so that it takes no more memory than a piece of it. Belongs to one event loop.
final class ProfileLookup: ResponseStream {
    private let userIDs: [Identifier]
    private let reader: any ProfileReader
    private var json = JSONWriter()
    /// Of the first user who has not been asked for.
    private var position = 0

    /// Bytes at which a piece is long enough to be sent.
    private static let pieceLength = 128 * 1024
    /// Users that the store is asked for at once.
    private var window = PageSize(atMost: 16)

    init(_ userIDs: [Identifier], _ reader: any ProfileReader) {
        self.userIDs = userIDs
        self.reader = reader
        json.beginObject()
        json.key("profiles")
        json.beginArray()
    }

    func answer(_ call: Call) {
        readPiece { [self] failure in
            if let failure {
                call.fail(failure)
            } else if position == userIDs.count {
                call.answer(json: json.take())
            } else {
                call.answer(Response(.ok, contentType: MediaType.json, body: .stream(self)))
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

    /// Reads on until a piece is long enough or all is read.
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

/// The profiles of some users as the store gives them, at once or later and in any order; on one thread.
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
