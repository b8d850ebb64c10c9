import Bucketing
public import Definitions
public import JSON
public import Storage

/// Parses requests about sticky values, in which Statsig's SDKs store assigned variations.
///
/// A unit, such as a user, has an object for each configuration. Only the SDKs interpret the content of the objects.
/// The objects of a unit are stored as one sticky document (``StickyDocumentInput``), so that erasing a user erases
/// them.
public enum StickyValueInput {
    /// The maximum length of an object, in bytes of its JSON.
    static let objectLimit = 65_536

    /// Parses the name of a unit, `<id>:<type of the id>` such as `ann:userID`, and returns the key of its document.
    /// The prefix `statsig` distinguishes the document from documents of GrowthBook's SDKs.
    ///
    /// - Throws: 400 if the name has no id or no type.
    public static func key(_ text: String) throws(CoreError) -> StickyDocumentKey {
        guard let colon = text.lastIndex(of: ":"), colon != text.startIndex else {
            throw CoreError(
                .invalid,
                "the key must be an id, a colon and the type of the id, such as 'ann:userID'; got "
                    + "'\(text.shortened(to: CoreError.longestQuote))'")
        }
        return try StickyDocumentInput.key("statsig" + text[colon...], String(text[..<colon]))
    }

    /// Parses `{"<configuration>":{…}|null,…}`; null removes the object of a configuration.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public static func change(_ body: JSONValue, of key: StickyDocumentKey) throws(CoreError) -> StickyDocumentChange {
        guard let object = body.object else {
            throw CoreError(.invalid, "the values must be an object by configuration; got \(body.kind)", at: [])
        }
        var change = StickyDocumentChange(key: key, assignments: [:])
        for member in object {
            let pointer = JSONPointer().appending(member.key)
            guard (1...StickyDocumentInput.nameLimit).contains(member.key.utf8.count), !member.key.utf8.contains(0)
            else {
                throw CoreError(
                    .invalid,
                    "the name of a configuration must be 1 to \(StickyDocumentInput.nameLimit) bytes long, "
                        + "without NUL; got \(member.key.utf8.count) bytes", at: pointer)
            }
            if member.value.isNull {
                change.removed.insert(Identifier(member.key))
                continue
            }
            guard member.value.object != nil else {
                throw CoreError(
                    .invalid, "the value of a configuration must be an object or null; got \(member.value.kind)",
                    at: pointer)
            }
            let json = member.value.encoded()
            guard json.count <= objectLimit else {
                throw CoreError(
                    .invalid,
                    "the value of a configuration must have at most \(objectLimit) bytes as JSON; got "
                        + "\(json.count)", at: pointer)
            }
            change.assignments[Identifier(member.key)] = Identifier(String(decoding: json, as: UTF8.self))
        }
        return change
    }

    /// Returns the stored objects by configuration. Null members of an object are left out, because SDKs write such
    /// members but cannot read them.
    public static func values(of document: StickyDocument) -> JSONObject {
        var values = JSONObject()
        for (name, json) in document.assignments.sorted(by: { $0.key < $1.key }) {
            guard let stored = (try? JSONParser().parse(json.string))?.object else { continue }
            var value = JSONObject()
            for member in stored where !member.value.isNull { value[member.key] = member.value }
            values[name.string] = .object(value)
        }
        return values
    }
}
