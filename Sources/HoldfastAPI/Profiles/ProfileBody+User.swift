import Bucketing
import HTTPServer

extension ProfileBody {
    /// The user that a request names by `user_id`, with the `attributes` it gives, if any.
    ///
    /// - Parameter place: where the object stands in the body.
    static func user(of object: JSONObject, at place: JSONPointer) throws(Problem) -> User {
        let userID = try checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
        guard let value = object["attributes"], !value.isNull else { return User(id: userID, attributes: JSONObject()) }
        guard let attributes = value.object else {
            throw Problem(.badRequest, "attributes is an object, not \(value.kind)", at: place.appending("attributes"))
        }
        return User(id: userID, attributes: attributes)
    }
}
