import JSON

/// Writes JSON values as YAML with the same meaning in YAML 1.1 and 1.2.
struct YAMLWriter {
    private var text = ""

    /// Returns a value as YAML, which ends with a line feed.
    static func text(_ value: JSONValue) -> String {
        var writer = YAMLWriter()
        writer.write(value, indent: "", isElement: false)
        return writer.text
    }

    /// Writes a value and the line's end.
    ///
    /// - Parameter isElement: whether the first line already has the value's indentation, after a hyphen.
    private mutating func write(_ value: JSONValue, indent: String, isElement: Bool) {
        switch value {
        case .object(let object) where !object.isEmpty:
            var isFirst = isElement
            for member in object {
                text += isFirst ? "" : indent
                isFirst = false
                text += Self.scalar(member.key) + ":"
                writeMember(member.value, indent: indent + "  ")
            }
        case .array(let elements) where !elements.isEmpty:
            var isFirst = isElement
            for element in elements {
                text += (isFirst ? "" : indent) + "- "
                isFirst = false
                write(element, indent: indent + "  ", isElement: true)
            }
        default: text += Self.flow(value) + "\n"
        }
    }

    /// Writes the value of a member after its key: on the same line if it is short.
    private mutating func writeMember(_ value: JSONValue, indent: String) {
        if Self.isShort(value) {
            text += " " + Self.flow(value) + "\n"
        } else {
            text += "\n"
            write(value, indent: indent, isElement: false)
        }
    }

    /// Whether a value is written in one line: a scalar, an empty object, or an array of at most 10 scalars whose
    /// strings have at most 40 bytes each.
    private static func isShort(_ value: JSONValue) -> Bool {
        switch value {
        case .object(let object): object.isEmpty
        case .array(let elements):
            elements.count <= 10
                && elements.allSatisfy { $0.object == nil && $0.array == nil && ($0.string?.utf8.count ?? 0) <= 40 }
        default: true
        }
    }

    /// Returns a value in one line.
    private static func flow(_ value: JSONValue) -> String {
        switch value {
        case .string(let string): scalar(string)
        case .array(let elements): "[" + elements.map { flow($0) }.joined(separator: ", ") + "]"
        default: String(decoding: value.encoded(), as: UTF8.self)
        }
    }

    /// Words that are not strings in YAML 1.1 or 1.2, and must be quoted.
    private static let words: Set<String> = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"]

    /// Returns a string, with quotation marks unless every reader reads it as a string without them.
    private static func scalar(_ string: String) -> String {
        let isPlain =
            string.utf8.first.map(isLetter) == true && string.utf8.last != UInt8(ascii: " ")
            && string.utf8.allSatisfy { isLetter($0) || (0x30...0x39).contains($0) || " -./".utf8.contains($0) }
            && !words.contains(string.lowercased())
        guard !isPlain else { return string }
        var quoted = ""
        for scalar in String(decoding: JSONValue.string(string).encoded(), as: UTF8.self).unicodeScalars {
            switch scalar.value {
            // Characters that YAML does not allow without an escape.
            case 0x7F...0x9F, 0xFEFF, 0xFFFE, 0xFFFF:
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte) || byte == UInt8(ascii: "_")
    }
}
