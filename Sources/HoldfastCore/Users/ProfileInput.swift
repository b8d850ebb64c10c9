public import Bucketing
public import Definitions
public import JSON
public import Storage

/// A user profile as a client sends it, checked against the schema of Optimizely's User Profile Service:
/// `{"user_id":"ann","experiment_bucket_map":{"77":{"variation_id":"78"}}}`. Other members are ignored.
public struct ProfileInput {
    public var userID: Identifier
    public var assignments: ExperimentBucketMap
    /// The assignments to restore with their source and times, by experiment id; empty except for a line of an import.
    /// Other assignments are saved with the current time.
    var restored: [Identifier: Assignment] = [:]

    /// Parses a profile.
    ///
    /// - Parameters:
    ///   - name: the name of the text, for errors.
    ///   - pathUserID: the user id in the path; `nil` if the path has none. The user id in the body must be equal or
    ///     absent.
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

    /// Reads a profile from parsed JSON; see ``init(_:called:pathUserID:)``.
    public init(_ value: JSONValue, pathUserID: Identifier? = nil) throws(CoreError) {
        guard let object = value.object else { throw Self.wrong([], "a profile must be an object; got \(value.kind)") }
        userID = try Self.userID(object["user_id"], path: pathUserID)
        guard let map = object["experiment_bucket_map"] else {
            throw Self.wrong(["experiment_bucket_map"], "`experiment_bucket_map` is required")
        }
        assignments = try Self.assignments(map)
    }

    /// Returns the user id of the body, or else the user id of the path.
    ///
    /// - Throws: 400 if both are absent, if they differ, or if the user id is invalid.
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

    /// Returns the change that saves the profile, and restores the assignments that have a source and times.
    ///
    /// - Parameters:
    ///   - rule: the rule for an experiment in which the stored profile has another variation.
    ///   - condition: `nil` for an unconditional change.
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

    /// Returns the user id in a text.
    ///
    /// - Throws: 400 unless the text has 1 to 1,024 bytes of UTF-8 without NUL.
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
    /// - Parameter place: the location of the map in the body, for errors.
    /// - Throws: 400 with a pointer to the member that is wrong.
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

    /// Returns the variation id in a value.
    ///
    /// - Throws: 400 unless the value is a string of 1 to 255 bytes.
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
