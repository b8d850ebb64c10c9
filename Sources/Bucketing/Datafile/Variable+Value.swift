import JSON

extension Variable.Kind {
    init(type: String, subType: String?) {
        switch type {
        case "boolean": self = .boolean
        case "integer": self = .integer
        case "double": self = .double
        case "json": self = .json
        case "string" where subType == "json": self = .json
        default: self = .string
        }
    }

    /// What a text of the datafile means, as the reference SDK's `get_typecast_value` reads it.
    ///
    /// - Returns: `nil` if the text does not suit.
    func value(_ text: String) -> JSONValue? {
        switch self {
        case .boolean: .bool(text.hasSameBytes(as: "true"))
        case .integer: Self.integer(text)
        case .double: Self.double(text)
        case .json: try? JSONParser().parse(text)
        case .string: .string(text)
        }
    }

    private static func integer(_ text: String) -> JSONValue? {
        guard let digits = number(text), digits.utf8.allSatisfy({ !".eE".utf8.contains($0) }) else { return nil }
        return Int64(digits).map { .integer($0) } ?? double(text)
    }

    private static func double(_ text: String) -> JSONValue? {
        guard let digits = number(text), let value = Double(digits), value.isFinite else { return nil }
        return .number(value)
    }

    /// A decimal number as Python reads one: white space around it and single underscores between digits do not count.
    private static func number(_ text: String) -> String? {
        let trimmed = text.drop(while: \.isWhitespace)
        guard let end = trimmed.lastIndex(where: { !$0.isWhitespace }) else { return nil }
        let pieces = trimmed[...end].split(separator: "_", omittingEmptySubsequences: false)
        for (piece, next) in zip(pieces, pieces.dropFirst()) {
            guard piece.last?.isASCIIDigit == true, next.first?.isASCIIDigit == true else { return nil }
        }
        let number = pieces.joined()
        return number.allSatisfy { $0.isASCIIDigit || "+-.eE".contains($0) } ? number : nil
    }
}

extension Character {
    fileprivate var isASCIIDigit: Bool {
        isASCII && isWholeNumber
    }
}
