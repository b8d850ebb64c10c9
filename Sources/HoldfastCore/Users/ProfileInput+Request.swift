public import Bucketing
public import Definitions
public import JSON
import Storage

// Parses members of other requests about a user: decisions, overrides and merges.

extension ProfileInput {
    /// Returns the user of a request from its `user_id` and its `attributes`. The caller must check the attributes with
    /// ``DecisionQuery/usable(in:at:)``, because their limits depend on the project.
    ///
    /// - Parameter place: the location of the object in the body, for errors.
    /// - Throws: 400 if a member has a wrong form.
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
    /// - Parameter mayNameAny: whether the caller may name any id. Otherwise the id must be one that nobody can guess,
    ///   because the caller gets the assignments of this id (``TakeoverRules``).
    /// - Throws: 400 if the id is invalid or may not be named.
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

    /// Returns the attributes that may be used for decisions, within two limits: ``attributeLimit`` and
    /// ``attributeBytes``. They bound the time to evaluate audiences, which grows with the number and length of
    /// attributes.
    ///
    /// Attributes that the project does not use are left out if there are too many attributes, or if they are too long.
    /// Clients often send attributes for other systems, so these must not cause an error.
    ///
    /// - Throws: 400 if attributes that the project uses are too long or too many.
    public static func usable(
        _ attributes: JSONObject, in project: Project, at place: @autoclosure () -> JSONPointer
    ) throws(CoreError) -> JSONObject {
        let areTooMany = attributes.count > attributeLimit
        func length(_ value: JSONValue) -> Int { value.string?.utf8.count ?? 0 }
        let isAnyTooLong = attributes.contains { length($0.value) > attributeBytes }
        guard areTooMany || isAnyTooLong else { return attributes }
        var usable = JSONObject()
        for member in attributes {
            let isTooLong = length(member.value) > attributeBytes
            if areTooMany || isTooLong, !project.uses(attribute: member.key) { continue }
            guard !isTooLong else {
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
