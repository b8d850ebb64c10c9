import Bucketing
import Definitions
import Glibc
import HoldfastCore
import JSON
import Storage

/// Writes JSON as Go's `encoding/json` does, because the Agent is written in Go.
enum GoJSON {
    /// Escapes `<`, `>` and `&` as Go's `encoding/json` does. In JSON they occur only within strings.
    static func escapingMarkup(_ json: [UInt8]) -> [UInt8] {
        let hasMarkup = json.withUnsafeBytes { bytes in
            bytes.baseAddress.map { base in
                markup.contains { memchr(base, Int32($0), bytes.count) != nil }
            } ?? false
        }
        guard hasMarkup else { return json }
        var escaped: [UInt8] = []
        escaped.reserveCapacity(json.count + 64)
        for byte in json {
            if isMarkup(byte) {
                escaped.append(contentsOf: "\\u00\(String(byte, radix: 16))".utf8)
            } else {
                escaped.append(byte)
            }
        }
        return escaped
    }

    private static let markup = Array("<>&".utf8)

    private static func isMarkup(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "<") || byte == UInt8(ascii: ">") || byte == UInt8(ascii: "&")
    }
}

extension JSONWriter {
    /// Writes a value in Go's format, in which whole numbers have no fraction.
    mutating func agentValue(_ value: JSONValue) {
        switch value {
        case .number(let number): shortest(number)
        case .array(let elements):
            beginArray()
            for element in elements { agentValue(element) }
            endArray()
        case .object(let object):
            agentObject(object)
        case .null, .bool, .integer, .string:
            self.value(value)
        }
    }

    /// Writes an object whose values are in Go's format.
    mutating func agentObject(_ object: JSONObject) {
        beginObject()
        for member in object {
            key(text: member.key)
            agentValue(member.value)
        }
        endObject()
    }

    /// Writes the member `variables`, unless there are none.
    mutating func agentVariables(_ variables: [VariableValue]) {
        guard !variables.isEmpty else { return }
        key("variables")
        beginObject()
        for variable in variables {
            key(text: variable.key.string)
            agentValue(variable.value)
        }
        endObject()
    }

    /// Returns a text in double quotes, for messages.
    static func quoted(_ text: String) -> String {
        var writer = JSONWriter()
        writer.string(text)
        return String(decoding: writer.finish(), as: UTF8.self)
    }
}
