import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// The JSON body of an Agent operation. It is read as Go decodes a struct: names are case-insensitive, `null` means
/// absent, unknown members are ignored, and a known member of the wrong type is refused.
struct AgentBody {
    private let object: JSONObject

    private static let parser = JSONParser()

    static let empty = AgentBody(JSONObject())

    private init(_ object: JSONObject) {
        self.object = object
    }

    /// - Throws: 400 unless the value is an object or null.
    init(_ value: JSONValue) throws(AgentError) {
        switch value {
        case .null: self = .empty
        case .object(let object): self.init(object)
        default: throw .malformedBody
        }
    }

    /// - Throws: 415 if the media type is not JSON, 400 if the body is not a JSON object or null.
    init(_ bytes: UnsafeRawBufferPointer, contentType: String?) throws(AgentError) {
        guard !bytes.isEmpty else {
            self = .empty
            return
        }
        try Self.checkContentType(contentType)
        let value: JSONValue
        do throws(JSONError) {
            value = try Self.parser.parse(bytes)
        } catch {
            throw .malformedBody
        }
        try self.init(value)
    }

    /// - Throws: 415 if the media type is not JSON.
    static func checkContentType(_ contentType: String?) throws(AgentError) {
        // A fast path for the value that nearly all clients send.
        if contentType == "application/json" { return }
        let mediaType = contentType?.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
        guard mediaType?.lowercased() == "application/json" else {
            let found = contentType.map { "'\($0.shortened(to: Problem.longestDetail))'" } ?? "none"
            throw AgentError(
                .unsupportedMediaType, "the body must be sent with 'Content-Type: application/json'; got \(found)")
        }
    }

    /// Returns a member by its name, or else by its name in another case; `nil` if it is absent or null.
    private func member(_ name: String) -> JSONValue? {
        guard let value = object[name] ?? memberIgnoringCase(name), !value.isNull else { return nil }
        return value
    }

    /// Returns the last match, which is the one that Go keeps.
    private func memberIgnoringCase(_ name: String) -> JSONValue? {
        object.members.last { member in
            member.key.utf8.count == name.utf8.count
                && zip(member.key.utf8, name.utf8).allSatisfy { Self.lowercased($0) == Self.lowercased($1) }
        }?.value
    }

    private static func lowercased(_ byte: UInt8) -> UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
    }

    /// Returns a string; empty if it is absent.
    func text(_ name: String) throws(AgentError) -> String {
        guard let value = member(name) else { return "" }
        guard let text = value.string else { throw .malformedBody }
        return text
    }

    /// Returns an object; `nil` if it is absent.
    func object(_ name: String) throws(AgentError) -> JSONObject? {
        guard let value = member(name) else { return nil }
        guard let object = value.object else { throw .malformedBody }
        return object
    }

    /// Returns the elements of an array; none if it is absent.
    func list(_ name: String) throws(AgentError) -> [JSONValue] {
        guard let value = member(name) else { return [] }
        guard let list = value.array else { throw .malformedBody }
        return list
    }

    /// Returns an array of strings; empty if it is absent. As in Go, a null element is an empty string.
    func texts(_ name: String) throws(AgentError) -> [String] {
        var texts: [String] = []
        for element in try list(name) {
            guard element.isNull || element.string != nil else { throw .malformedBody }
            texts.append(element.string ?? "")
        }
        return texts
    }

    /// Returns an object of strings; empty if it is absent. As in Go, a null member is an empty string.
    func textMap(_ name: String) throws(AgentError) -> [(name: String, value: String)] {
        var texts: [(name: String, value: String)] = []
        for member in try object(name) ?? JSONObject() {
            guard member.value.isNull || member.value.string != nil else { throw .malformedBody }
            texts.append((member.key, member.value.string ?? ""))
        }
        return texts
    }

    /// Returns a boolean; false if it is absent.
    func flag(_ name: String) throws(AgentError) -> Bool {
        guard let value = member(name) else { return false }
        guard let flag = value.bool else { throw .malformedBody }
        return flag
    }
}

// MARK: - Members of several operations

extension AgentBody {
    /// Returns a text as a user id.
    ///
    /// - Throws: 400 if it cannot be stored.
    static func check(userID text: String) throws(AgentError) -> Identifier {
        do throws(CoreError) {
            return try ProfileInput.checkUserID(text, at: nil)
        } catch {
            throw AgentError(error)
        }
    }

    /// Returns `userId`, which most operations require.
    func userID() throws(AgentError) -> Identifier {
        let text = try text("userId")
        guard !text.isEmpty else { throw .missingUserID }
        return try Self.check(userID: text)
    }

    /// Returns `anonymous_id`, or `anonymousId` as the Agent would call it; `nil` if it is absent.
    ///
    /// - Parameter mayNameAny: see ``ProfileInput/anonymousID(of:at:mayNameAny:)``.
    func anonymousID(mayNameAny: Bool) throws(AgentError) -> Identifier? {
        for name in ["anonymous_id", "anonymousId"] {
            let text = try text(name)
            guard !text.isEmpty else { continue }
            do throws(CoreError) {
                return try ProfileInput.checkAnonymousID(text, at: nil, mayNameAny: mayNameAny)
            } catch {
                throw AgentError(error)
            }
        }
        return nil
    }

    /// Returns the `userAttributes` that the project may use.
    func userAttributes(in project: Project) throws(AgentError) -> JSONObject {
        let attributes = try object("userAttributes") ?? JSONObject()
        do throws(CoreError) {
            return try ProfileInput.usable(attributes, in: project, at: ["userAttributes"])
        } catch {
            throw AgentError(error)
        }
    }
}
