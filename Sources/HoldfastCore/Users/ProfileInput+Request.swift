public import Bucketing
public import Definitions
public import JSON
import Storage

// Members of other requests about a user, such as decisions, overrides and merges.

extension ProfileInput {
    /// Returns the user of a request from its `user_id` and its `attributes`, if any. The attributes must be checked
    /// with ``DecisionQuery/usable(in:at:)``.
    ///
    /// - Parameter place: the place of the object in the body.
    public static func user(of object: JSONObject, at place: JSONPointer) throws(CoreError) -> User {
        let userID = try checkUserID(try object.text("user_id", in: place), at: place.appending("user_id"))
        guard let value = object["attributes"], !value.isNull else { return User(id: userID, attributes: JSONObject()) }
        guard let attributes = value.object else {
            throw CoreError(
                .invalid, "`attributes` must be an object; got \(value.kind)", at: place.appending("attributes"))
        }
        return User(id: userID, attributes: attributes)
    }

    /// Returns a request's `anonymous_id`, the user's id before login; `nil` if it is absent or null.
    ///
    /// - Parameter mayNameAny: whether the caller may name any id. Otherwise only ids that nobody can guess are allowed
    ///   (``TakeoverRules``).
    public static func anonymousID(
        of object: JSONObject, at place: JSONPointer = [], mayNameAny: Bool
    ) throws(CoreError) -> Identifier? {
        guard let text = try object.optionalText("anonymous_id", in: place) else { return nil }
        return try checkAnonymousID(text, at: place.appending("anonymous_id"), mayNameAny: mayNameAny)
    }

    /// Checks an `anonymous_id`; see ``anonymousID(of:at:mayNameAny:)``.
    public static func checkAnonymousID(
        _ text: String, at pointer: JSONPointer?, mayNameAny: Bool
    ) throws(CoreError) -> Identifier {
        guard mayNameAny || TakeoverRules.isUnguessable(text) else {
            let found = text.shortened(to: CoreError.longestQuote)
            throw CoreError(
                .invalid,
                "`anonymous_id` must be 'anonymous-' and a random UUID (version 4); got '\(found)'", at: pointer)
        }
        return try checkUserID(text, at: pointer)
    }

    /// Returns the `reason` of an override, of 1 to 255 bytes; `nil` if it is absent or null.
    public static func reason(of object: JSONObject, at place: JSONPointer = []) throws(CoreError) -> String? {
        guard let reason = try object.optionalText("reason", in: place) else { return nil }
        guard (1...OverrideLayer.reasonLimit).contains(reason.utf8.count) else {
            throw CoreError(
                .invalid,
                "`reason` must be 1 to \(OverrideLayer.reasonLimit) bytes long; got \(reason.utf8.count)",
                at: place.appending("reason"))
        }
        return reason
    }

    /// The maximum number of a user's attributes in one request.
    static let attributeLimit = 1_000
    /// The maximum length of a string attribute, in bytes.
    static let attributeBytes = 4_096

    /// Returns the attributes that may be used for decisions. If there are too many, or if any is too long, these are
    /// only the attributes that the project uses. The limits bound the time to evaluate audiences, which grows with the
    /// number and length of attributes.
    ///
    /// - Throws: 400 if attributes that the project uses are too long or too many.
    public static func usable(
        _ attributes: JSONObject, in project: Project, at place: @autoclosure () -> JSONPointer
    ) throws(CoreError) -> JSONObject {
        let isMany = attributes.count > attributeLimit
        func length(_ value: JSONValue) -> Int { value.string?.utf8.count ?? 0 }
        guard isMany || attributes.contains(where: { length($0.value) > attributeBytes }) else { return attributes }
        var usable = JSONObject()
        for member in attributes {
            let isUsed = project.uses(attribute: member.key)
            guard isUsed || !isMany && length(member.value) <= attributeBytes else { continue }
            guard length(member.value) <= attributeBytes else {
                throw CoreError(
                    .invalid,
                    "an attribute that an audience uses must be at most \(attributeBytes) bytes long; got "
                        + "\(length(member.value))",
                    at: place().appending(member.key))
            }
            usable[member.key] = member.value
        }
        guard usable.count <= attributeLimit else {
            throw CoreError(
                .invalid, "attributes that audiences use must be at most \(attributeLimit); got \(usable.count)",
                at: place())
        }
        return usable
    }
}
