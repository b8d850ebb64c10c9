import Bucketing
import JSON

extension JSONWriter {
    /// Writes a value with whole numbers without a fraction, as Go writes them.
    mutating func agentValue(_ value: JSONValue) {
        switch value {
        case .number(let number):
            if let whole = Int64(exactly: number) { integer(whole) } else { self.number(number) }
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

    mutating func agentObject(_ object: JSONObject) {
        beginObject()
        for member in object {
            key(text: member.key)
            agentValue(member.value)
        }
        endObject()
    }

    /// `variables`; left out when there are none.
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
}

extension JSONWriter {
    /// A text in double quotes, for messages.
    static func quoted(_ text: String) -> String {
        var writer = JSONWriter()
        writer.string(text)
        return String(decoding: writer.finish(), as: UTF8.self)
    }
}
