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
}
