import Bucketing
import HTTPServer
import JSON

extension ProfileBody {
    /// The user that a request names by `user_id`, with the `attributes` it gives, if any.
    ///
    /// - Parameter place: where the object stands in the body.
    static func user(of object: JSONObject, at place: JSONPointer) throws(Problem) -> User {
        let userID = try checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
        guard let value = object["attributes"], !value.isNull else { return User(id: userID, attributes: JSONObject()) }
        guard let attributes = value.object else {
            throw Problem(.badRequest, "`attributes` must be an object; got \(value.kind)", at: place.appending("attributes"))
        }
        try check(attributes: attributes, at: place.appending("attributes"))
        return User(id: userID, attributes: attributes)
    }

    /// Attributes of a user in one request.
    static let attributeLimit = 1_000
    /// Bytes of one attribute that is a string.
    static let attributeBytes = 4_096

    /// What audiences ask of attributes takes time for each condition, and for each byte.
    static func check(
        attributes: JSONObject, at place: @autoclosure () -> JSONPointer
    ) throws(Problem) {
        guard attributes.count <= attributeLimit else {
            throw Problem(
                .badRequest, "attributes must be at most \(attributeLimit); got \(attributes.count)", at: place())
        }
        for member in attributes {
            guard let text = member.value.string, text.utf8.count > attributeBytes else { continue }
            throw Problem(
                .badRequest, "an attribute must be at most \(attributeBytes) bytes long; got \(text.utf8.count)",
                at: place().appending(member.key))
        }
    }
}
