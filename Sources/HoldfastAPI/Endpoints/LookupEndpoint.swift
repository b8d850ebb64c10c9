import Bucketing
import HTTPServer
import JSON
import Storage

/// `POST /v1/profiles/lookup`: the profiles of many users in one request.
struct LookupEndpoint {
    let reader: any ProfileReader
    /// User ids of one request.
    let limit: Int

    /// Answers in the order asked, with `null` for a user without a profile.
    func post(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let userIDs: [Identifier] = try request.withBody { bytes throws(Problem) in try self.userIDs(bytes) }
            ProfileLookup(userIDs, reader).answer(call)
        } catch {
            call.fail(error)
        }
    }

    private func userIDs(_ bytes: UnsafeRawBufferPointer) throws(Problem) -> [Identifier] {
        let place: JSONPointer = ["user_ids"]
        let object = try ProfileBody.parse(bytes).object("a lookup", knowing: ["user_ids"])
        guard let list = object["user_ids"]?.array else {
            let found = object["user_ids"]?.kind ?? "nothing"
            throw Problem(.badRequest, "`user_ids` must be an array of strings; got \(found)", at: place)
        }
        guard list.count <= limit else {
            throw Problem(.badRequest, "`user_ids` must have at most \(limit) elements; got \(list.count)", at: place)
        }
        var userIDs: [Identifier] = []
        userIDs.reserveCapacity(list.count)
        for (index, element) in list.enumerated() {
            let pointer = place.appending(index)
            guard let text = element.string else {
                throw Problem(.badRequest, "a user id must be a string; got \(element.kind)", at: pointer)
            }
            userIDs.append(try ProfileBody.checkUserID(text, at: pointer))
        }
        return userIDs
    }
}
