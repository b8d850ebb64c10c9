public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Parses requests about sticky documents, in which GrowthBook's SDKs keep the assignments of a user. A user has a
/// document for each attribute by which users are assigned, such as an id or a device. The members have the names that
/// the SDKs use.
public enum StickyDocumentInput {
    /// The maximum length of an attribute's name, of a key of an assignment and of a variation, in bytes.
    static let nameLimit = 255
    /// The maximum number of documents in one request.
    static let lookupLimit = 32

    /// Returns the key of a document: an attribute's name of 1 to 255 bytes without control characters, and a value of
    /// 1 to 1,024 bytes without NUL.
    ///
    /// - Parameter pointer: the location of the value in the body; `nil` if it is in the path.
    /// - Throws: 400 if the name or the value is not allowed.
    public static func key(
        _ attributeName: String, _ value: String, at pointer: JSONPointer? = nil
    ) throws(CoreError) -> StickyDocumentKey {
        guard (1...nameLimit).contains(attributeName.utf8.count), attributeName.utf8.allSatisfy({ $0 >= 0x20 }) else {
            throw CoreError(
                .invalid,
                "an attribute's name must be 1 to 255 bytes of UTF-8 without control characters; got "
                    + "\(attributeName.utf8.count) bytes", at: pointer)
        }
        guard (1...1_024).contains(value.utf8.count), !value.utf8.contains(0) else {
            throw CoreError(
                .invalid,
                "an attribute's value must be 1 to 1024 bytes of UTF-8 without NUL; got \(value.utf8.count) bytes",
                at: pointer)
        }
        return StickyDocumentKey(attributeName: Identifier(attributeName), attributeValue: Identifier(value))
    }

    /// Parses `{"attributeName"?,"attributeValue"?,"assignments":{"<experiment>__<bucketVersion>":"<variation>"}}`.
    ///
    /// - Parameter key: the key of the document in the path. Name and value in the body must be equal or absent.
    /// - Returns: the assignments.
    /// - Throws: 400 with a pointer to the member that is wrong.
    public static func assignments(
        _ body: JSONValue, of key: StickyDocumentKey
    ) throws(CoreError) -> [Identifier: Identifier] {
        let object = try body.object(
            "a sticky document", knowing: ["attributeName", "attributeValue", "assignments"])
        for (member, wanted) in [("attributeName", key.attributeName), ("attributeValue", key.attributeValue)] {
            guard let given = try object.optionalText(member), Identifier(given) != wanted else { continue }
            throw CoreError(
                .invalid, "`\(member)` must be as in the path, '\(wanted)'; got '\(given)'",
                at: JSONPointer().appending(member))
        }
        let place: JSONPointer = ["assignments"]
        guard let value = object["assignments"] else {
            throw CoreError(.invalid, "`assignments` is required", at: place)
        }
        guard let members = value.object else {
            throw CoreError(.invalid, "`assignments` must be an object; got \(value.kind)", at: place)
        }
        var assignments: [Identifier: Identifier] = [:]
        for member in members {
            let pointer = place.appending(member.key)
            guard isAssignmentKey(member.key) else {
                throw CoreError(
                    .invalid,
                    "the key of an assignment must be '<experiment>__<bucketVersion>', such as 'checkout__0', "
                        + "of at most 255 bytes; got '\(member.key.shortened(to: CoreError.longestQuote))'", at: pointer
                )
            }
            assignments[Identifier(member.key)] = try variation(member.value, at: pointer)
        }
        return assignments
    }

    /// Returns the variation of an assignment.
    private static func variation(_ value: JSONValue, at pointer: JSONPointer) throws(CoreError) -> Identifier {
        guard let variation = value.string else {
            throw CoreError(.invalid, "a variation must be a string; got \(value.kind)", at: pointer)
        }
        guard (1...nameLimit).contains(variation.utf8.count) else {
            throw CoreError(
                .invalid, "a variation must be 1 to 255 bytes long; got \(variation.utf8.count)", at: pointer)
        }
        return Identifier(variation)
    }

    /// Whether a text is the name of an experiment, two underscores and a number.
    private static func isAssignmentKey(_ text: String) -> Bool {
        guard text.utf8.count <= nameLimit, !text.utf8.contains(0) else { return false }
        let digits = text.utf8.reversed().prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        let rest = text.utf8.dropLast(digits.count)
        return !digits.isEmpty && rest.count > 2 && rest.suffix(2).elementsEqual("__".utf8)
    }

    /// Parses `{"attributes":{"<name>":"<value>"}}`, and returns the keys of the requested documents.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public static func lookup(_ body: JSONValue) throws(CoreError) -> [StickyDocumentKey] {
        let place: JSONPointer = ["attributes"]
        let value = try body.object("a lookup", knowing: ["attributes"])["attributes"]
        guard let attributes = value?.object else {
            let found = value?.kind ?? "nothing"
            throw CoreError(.invalid, "`attributes` must be an object of strings; got \(found)", at: place)
        }
        guard attributes.count <= lookupLimit else {
            throw CoreError(
                .invalid, "`attributes` must have at most \(lookupLimit) members; got \(attributes.count)", at: place)
        }
        var keys: [StickyDocumentKey] = []
        for member in attributes {
            let pointer = place.appending(member.key)
            guard let text = member.value.string else {
                throw CoreError(
                    .invalid, "an attribute's value must be a string; got \(member.value.kind)", at: pointer)
            }
            // GrowthBook's JavaScript SDK sends an empty value for an attribute that the user lacks. No document has
            // such a key.
            guard !text.isEmpty else { continue }
            keys.append(try key(member.key, text, at: pointer))
        }
        return keys
    }
}
