/// What became of an update or deletion of attributes.
public struct AttributeChangeOutcome: Sendable {
    public enum Operation: Sendable, Hashable {
        case update, delete
    }

    public enum Result: Sendable {
        /// The server stored the change.
        case success
        /// The change is lost: the server refused it, or the queue was full.
        case failure(reason: String)
        /// The change could not be sent now; it is sent again.
        case postponed(HoldfastError)
    }

    public let operation: Operation
    public let userID: String
    /// Names of the attributes.
    public let names: [String]
    public let result: Result

    init?(_ notice: DeliveryNotice) {
        guard case .attributes(let event) = notice.event else { return nil }
        operation = event.attributes.isEmpty ? .delete : .update
        userID = event.userID
        names = event.names
        result =
            switch notice.outcome {
            case .delivered: .success
            case .refused(let reason): .failure(reason: reason)
            case .dropped(let reason): .failure(reason: reason.description)
            case .postponed(let error): .postponed(error)
            }
    }
}

/// The definition of an attribute on the server.
struct DefinedAttribute: Decodable, Sendable {
    struct List: Decodable {
        var attributes: [DefinedAttribute]
    }

    var name: String
    var type: String
    var values: [String]?
    var multiple: Bool?

    /// - Returns: why the server would refuse a value; `nil` if it would not, as far as the client can tell.
    func problem(of value: UserAttributeValue) -> String? {
        switch (type, value) {
        case ("boolean", .bool), ("number", .integer), ("number", .number), ("string", .string): nil
        case ("country", .string(let text)):
            text.utf8.count == 2 && text.utf8.allSatisfy { (0x61...0x7A).contains($0) }
                ? nil : "a country must be two lower-case letters; got '\(text)'"
        case ("date", .string(let text)):
            Self.matches(text, "0000-00-00") ? nil : "a date must be yyyy-mm-dd; got '\(text)'"
        case ("time", .string(let text)):
            Self.matches(text, "00:00") ? nil : "a time must be HH:MM; got '\(text)'"
        case ("timestamp", .string(let text)):
            Self.matches(String(text.prefix(10)), "0000-00-00") && text.contains("T")
                ? nil : "a timestamp must be as in RFC 3339; got '\(text)'"
        case ("selection", .string(let text)): problem(ofChoices: [text])
        case ("selection", .list(let texts)):
            multiple == true ? problem(ofChoices: texts) : "a user has one of the values; got a list"
        case ("boolean", _), ("number", _), ("string", _), ("country", _), ("date", _), ("time", _), ("timestamp", _),
            ("selection", _):
            "the value must be of type \(type); got \(value.typeName)"
        default: nil
        }
    }

    private func problem(ofChoices texts: [String]) -> String? {
        guard let wrong = texts.first(where: { text in values?.contains { $0.hasSameBytes(as: text) } == false }) else {
            return nil
        }
        return "the value must be one of \((values ?? []).joined(separator: ", ")); got '\(wrong)'"
    }

    /// Whether a text has the pattern's length, with a digit for each `0` and all else equal.
    private static func matches(_ text: String, _ pattern: String) -> Bool {
        text.utf8.count == pattern.utf8.count
            && zip(text.utf8, pattern.utf8).allSatisfy { $1 == 0x30 ? (0x30...0x39).contains($0) : $0 == $1 }
    }
}

extension UserAttributeValue {
    fileprivate var typeName: String {
        switch self {
        case .string: "a string"
        case .integer, .number: "a number"
        case .bool: "a boolean"
        case .list: "a list"
        }
    }
}
