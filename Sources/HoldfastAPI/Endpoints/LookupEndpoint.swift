import Bucketing
import HTTPServer
import Storage

/// `POST /v1/profiles/lookup`: the profiles of many users in one request.
struct LookupEndpoint {
    let reader: any ProfileReader
    /// User ids of one request.
    let limit: Int

    /// Answers in the order asked, with `null` for a user without a profile.
    func post(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            lookUp(try request.withBody { bytes throws(Problem) in try userIDs(bytes) }, call)
        } catch {
            call.fail(error)
        }
    }

    private func userIDs(_ bytes: UnsafeRawBufferPointer) throws(Problem) -> [Identifier] {
        let place: JSONPointer = ["user_ids"]
        let value = try ProfileBody.parse(bytes)
        guard let object = value.object else {
            throw Problem(.badRequest, "a lookup is an object, not \(value.kind)", at: [])
        }
        guard let list = object["user_ids"]?.array else {
            throw Problem(.badRequest, "user_ids is an array of strings", at: place)
        }
        guard list.count <= limit else {
            throw Problem(.badRequest, "user_ids has \(list.count) elements; the limit is \(limit)", at: place)
        }
        var userIDs: [Identifier] = []
        userIDs.reserveCapacity(list.count)
        for (index, element) in list.enumerated() {
            let pointer = place.appending(index)
            guard let text = element.string else {
                throw Problem(.badRequest, "a user id is a string, not \(element.kind)", at: pointer)
            }
            userIDs.append(try ProfileBody.checkUserID(text, at: pointer))
        }
        return userIDs
    }

    /// Asks for all at once; a store may answer at once or later, and in any order.
    private func lookUp(_ userIDs: [Identifier], _ call: Call) {
        let gathering = Gathering(userIDs, call)
        for index in userIDs.indices {
            reader.profile(of: userIDs[index]) { gathering.add($0, at: index) }
        }
    }
}

/// The answers to one lookup as they come in; on one thread.
private final class Gathering {
    private let userIDs: [Identifier]
    private let call: Call
    private var profiles: [ProfileRecord?]
    private var missing: Int
    private var failure: StorageError?

    init(_ userIDs: [Identifier], _ call: Call) {
        self.userIDs = userIDs
        self.call = call
        profiles = Array(repeating: nil, count: userIDs.count)
        missing = userIDs.count
        if userIDs.isEmpty { answer() }
    }

    func add(_ result: Result<ProfileRecord?, StorageError>, at index: Int) {
        switch result {
        case .success(let profile): profiles[index] = profile
        case .failure(let error): failure = error
        }
        missing -= 1
        if missing == 0 { answer() }
    }

    private func answer() {
        if let failure { return call.fail(failure) }
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("profiles")
        writer.beginArray()
        for (userID, profile) in zip(userIDs, profiles) {
            if let profile {
                ProfileJSON.append(userID, profile, to: &writer)
            } else {
                writer.null()
            }
        }
        writer.endArray()
        writer.endObject()
        call.answer(json: writer.bytes)
    }
}
