import Bucketing
import HTTPServer
import JSON
import Storage

/// A user profile as a client sends it, checked against the User Profile Service schema: an object with `user_id` and
/// `experiment_bucket_map`; other members are allowed and ignored.
struct ProfileBody {
    var userID: Identifier
    var assignments: ExperimentBucketMap

    private static let parser = JSONParser(maximumDepth: 64, duplicateKeys: .refused)

    /// - Parameter name: what an error calls the text.
    static func parse(_ bytes: UnsafeRawBufferPointer, called name: String = "the body") throws(Problem) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw Problem(error, in: name)
        }
    }

    static func parse(_ bytes: [UInt8]) throws(Problem) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw Problem(error, in: "the body")
        }
    }

    /// The value of a parameter of the query.
    static func parse(parameter name: String, _ text: String) throws(Problem) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(Array(text.utf8))
        } catch {
            var problem = Problem(error, in: "the query parameter `\(name)`")
            problem.pointer = nil
            throw problem
        }
    }

    /// - Parameters:
    ///   - name: what an error calls the text.
    ///   - pathUserID: the user that the path names; then the body may leave it out, and must agree.
    init(
        _ bytes: UnsafeRawBufferPointer, called name: String = "the body", pathUserID: Identifier? = nil
    ) throws(Problem) {
        if pathUserID == nil, let plain = PlainProfileScanner.scan(bytes) {
            self = plain
        } else {
            try self.init(Self.parse(bytes, called: name), pathUserID: pathUserID)
        }
    }

    init(userID: Identifier, assignments: ExperimentBucketMap) {
        self.userID = userID
        self.assignments = assignments
    }

    init(_ value: JSONValue, pathUserID: Identifier? = nil) throws(Problem) {
        guard let object = value.object else { throw Self.wrong([], "a profile must be an object; got \(value.kind)") }
        userID = try Self.userID(object["user_id"], path: pathUserID)
        guard let map = object["experiment_bucket_map"] else {
            throw Self.wrong(["experiment_bucket_map"], "`experiment_bucket_map` is required")
        }
        assignments = try Self.assignments(map)
    }

    private static func userID(_ value: JSONValue?, path: Identifier?) throws(Problem) -> Identifier {
        guard let value else {
            if let path { return path }
            throw wrong(["user_id"], "`user_id` is required")
        }
        guard let text = value.string else { throw wrong(["user_id"], "`user_id` must be a string; got \(value.kind)") }
        let userID = try checkUserID(text, at: ["user_id"])
        if let path, path != userID { throw wrong(["user_id"], "`user_id` must be the user id in the path, '\(path)'; got '\(userID)'") }
        return userID
    }

    /// 1 to 1,024 bytes of UTF-8 without NUL.
    static func checkUserID(
        _ text: String, at pointer: @autoclosure () -> JSONPointer?
    ) throws(Problem) -> Identifier {
        guard !text.isEmpty else { throw Problem(.badRequest, "a user id must be 1 to 1024 bytes long; got none", at: pointer()) }
        guard text.utf8.count <= 1_024 else {
            throw Problem(.badRequest, "a user id must be 1 to 1024 bytes long; got \(text.utf8.count)", at: pointer())
        }
        guard !text.utf8.contains(0) else { throw Problem(.badRequest, "a user id must not contain NUL", at: pointer()) }
        return Identifier(text)
    }

    /// - Parameter place: where the map stands in the body.
    static func assignments(
        _ map: JSONValue, at place: JSONPointer = ["experiment_bucket_map"]
    ) throws(Problem) -> ExperimentBucketMap {
        guard let object = map.object else {
            throw wrong(place, "`experiment_bucket_map` must be an object; got \(map.kind)")
        }
        var entries: [ExperimentBucketMap.Entry] = []
        entries.reserveCapacity(object.count)
        for member in object {
            let experimentID = try checkExperimentID(member.key, at: place.appending(member.key))
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

    /// `^[a-zA-Z0-9]+$`, at the most 255 bytes.
    static func checkExperimentID(
        _ text: String, at pointer: @autoclosure () -> JSONPointer?
    ) throws(Problem) -> Identifier {
        guard isExperimentID(text.utf8) else {
            throw Problem(.badRequest, "an experiment id must consist of ASCII letters and digits; got '\(text)'", at: pointer())
        }
        guard text.utf8.count <= 255 else {
            throw Problem(.badRequest, "an experiment id must be at most 255 bytes long; got \(text.utf8.count)", at: pointer())
        }
        return Identifier(text)
    }

    static func isExperimentID(_ bytes: some Collection<UInt8>) -> Bool {
        !bytes.isEmpty
            && bytes.allSatisfy { byte in
                byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
            }
    }

    /// A string of 1 to 255 bytes.
    static func variationID(
        _ value: JSONValue, at pointer: @autoclosure () -> JSONPointer
    ) throws(Problem) -> Identifier {
        guard let text = value.string else { throw wrong(pointer(), "`variation_id` must be a string; got \(value.kind)") }
        guard isVariationID(text.utf8) else { throw wrong(pointer(), "`variation_id` must be 1 to 255 bytes long; got \(text.utf8.count)") }
        return Identifier(text)
    }

    static func isVariationID(_ bytes: some Collection<UInt8>) -> Bool {
        (1...255).contains(bytes.count)
    }

    private static func wrong(_ pointer: JSONPointer, _ detail: String) -> Problem {
        Problem(.badRequest, detail, at: pointer)
    }
}
