public import Bucketing
public import Definitions
public import JSON
public import Storage

/// A user profile as a client sends it, checked against the schema of the User Profile Service: an object with
/// `user_id` and `experiment_bucket_map`. Other members are ignored.
public struct ProfileInput {
    public var userID: Identifier
    public var assignments: ExperimentBucketMap
    /// The assignments with source and times, by experiment; only for a line of an import.
    var restored: [Identifier: Assignment] = [:]

    /// Parses a profile.
    ///
    /// - Parameters:
    ///   - name: the name of the text in an error.
    ///   - pathUserID: the user id in the path. If it is not `nil`, the user id in the body must be equal or absent.
    /// - Throws: 400 with a pointer to the member that is wrong.
    public init(
        _ bytes: UnsafeRawBufferPointer, called name: String = "the body", pathUserID: Identifier? = nil
    ) throws(CoreError) {
        if let plain = PlainProfileScanner.scan(bytes, pathUserID: pathUserID) {
            self = plain
        } else {
            try self.init(JSONInput.parse(bytes, called: name), pathUserID: pathUserID)
        }
    }

    public init(userID: Identifier, assignments: ExperimentBucketMap) {
        self.userID = userID
        self.assignments = assignments
    }

    public init(_ value: JSONValue, pathUserID: Identifier? = nil) throws(CoreError) {
        guard let object = value.object else { throw Self.wrong([], "a profile must be an object; got \(value.kind)") }
        userID = try Self.userID(object["user_id"], path: pathUserID)
        guard let map = object["experiment_bucket_map"] else {
            throw Self.wrong(["experiment_bucket_map"], "`experiment_bucket_map` is required")
        }
        assignments = try Self.assignments(map)
    }

    private static func userID(_ value: JSONValue?, path: Identifier?) throws(CoreError) -> Identifier {
        guard let value else {
            if let path { return path }
            throw wrong(["user_id"], "`user_id` is required")
        }
        guard let text = value.string else { throw wrong(["user_id"], "`user_id` must be a string; got \(value.kind)") }
        let userID = try checkUserID(text, at: ["user_id"])
        if let path, path != userID {
            throw wrong(["user_id"], "`user_id` must be the user id in the path, '\(path)'; got '\(userID)'")
        }
        return userID
    }

    /// Returns the change that saves the profile, and restores the assignments with source and times.
    ///
    /// - Parameter condition: `nil` for an unconditional change.
    public func change(
        onConflict rule: ProfileChange.ConflictRule, if condition: ProfileChange.Condition? = nil
    ) -> ProfileChange {
        let operation: ProfileChange.Operation
        if restored.isEmpty {
            operation = .save(assignments, onConflict: rule)
        } else {
            let plain = assignments.entries.filter { restored[$0.experimentID] == nil }
            operation = .restore(restored, saving: ExperimentBucketMap(plain), onConflict: rule)
        }
        return ProfileChange(userID: userID, operation: operation, condition: condition)
    }

    /// Returns a user id if it has 1 to 1,024 bytes of UTF-8 without NUL.
    public static func checkUserID(
        _ text: String, at pointer: @autoclosure () -> JSONPointer?
    ) throws(CoreError) -> Identifier {
        guard !text.isEmpty else {
            throw CoreError(.invalid, "a user id must be 1 to 1024 bytes long; got none", at: pointer())
        }
        guard text.utf8.count <= 1_024 else {
            throw CoreError(.invalid, "a user id must be 1 to 1024 bytes long; got \(text.utf8.count)", at: pointer())
        }
        guard !text.utf8.contains(0) else { throw CoreError(.invalid, "a user id must not contain NUL", at: pointer()) }
        return Identifier(text)
    }

    /// Parses an `experiment_bucket_map`.
    ///
    /// - Parameter place: the place of the map in the body.
    public static func assignments(
        _ map: JSONValue, at place: JSONPointer = ["experiment_bucket_map"]
    ) throws(CoreError) -> ExperimentBucketMap {
        guard let object = map.object else {
            throw wrong(place, "`experiment_bucket_map` must be an object; got \(map.kind)")
        }
        var entries: [ExperimentBucketMap.Entry] = []
        entries.reserveCapacity(object.count)
        for member in object {
            let experimentID = try NameRule.checkExperimentID(member.key, at: place.appending(member.key))
            guard let entry = member.value.object else {
                throw wrong(place.appending(member.key), "an assignment must be an object; got \(member.value.kind)")
            }
            guard let variation = entry["variation_id"] else {
                throw wrong(place.appending(member.key).appending("variation_id"), "`variation_id` is required")
            }
            let variationID = try variationID(variation, at: place.appending(member.key).appending("variation_id"))
            entries.append(.init(experimentID: experimentID, variationID: variationID))
        }
        return ExperimentBucketMap(entries)
    }

    /// Returns a variation id if it is a string of 1 to 255 bytes.
    public static func variationID(
        _ value: JSONValue, at pointer: @autoclosure () -> JSONPointer
    ) throws(CoreError) -> Identifier {
        guard let text = value.string else {
            throw wrong(pointer(), "`variation_id` must be a string; got \(value.kind)")
        }
        guard NameRule.isVariationID(text.utf8) else {
            throw wrong(pointer(), "`variation_id` must be 1 to 255 bytes long; got \(text.utf8.count)")
        }
        return Identifier(text)
    }

    private static func wrong(_ pointer: JSONPointer, _ detail: String) -> CoreError {
        CoreError(.invalid, detail, at: pointer)
    }
}

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

    /// See ``anonymousID(of:at:mayNameAny:)``.
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

    /// Returns the attributes, without those that the project does not use if there are too many or any is too long.
    /// The limits bound the time to evaluate audiences, which grows with the number and length of attributes.
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
