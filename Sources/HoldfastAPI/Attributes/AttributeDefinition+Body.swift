import Bucketing
import HTTPServer

extension AttributeDefinition {
    /// `{"type":"number"}`, or `{"type":"selection","values":["One","Two"],"multiple":true}`.
    init(_ body: JSONValue, name: Identifier) throws(Problem) {
        let object = try body.object("an attribute", knowing: ["name", "type", "values", "multiple"])
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw Problem(.badRequest, "name is another than the path names", at: ["name"])
        }
        guard let type = AttributeType(rawValue: try object.text("type")) else {
            let types = AttributeType.allCases.map(\.rawValue).joined(separator: ", ")
            throw Problem(.badRequest, "type is one of \(types)", at: ["type"])
        }
        guard type == .selection else {
            for key in ["values", "multiple"] where object[key] != nil {
                throw Problem(.badRequest, "only a selection has \(key)", at: JSONPointer().appending(key))
            }
            self.init(name: name, number: 0, type: type)
            return
        }
        let multiple = object["multiple"] ?? false
        guard let isMultiple = multiple.bool else {
            throw Problem(.badRequest, "multiple is true or false, not \(multiple.kind)", at: ["multiple"])
        }
        let values = try Self.allowedValues(object["values"], isMultiple)
        self.init(name: name, number: 0, type: type, allowedValues: values, isMultiple: isMultiple)
    }

    private static func allowedValues(_ value: JSONValue?, _ isMultiple: Bool) throws(Problem) -> [Identifier] {
        let place: JSONPointer = ["values"]
        guard let list = value?.array, (1...mostValues).contains(list.count) else {
            throw Problem(.badRequest, "values is an array of 1 to \(mostValues) strings", at: place)
        }
        var values: [Identifier] = []
        var seen: Set<Identifier> = []
        for (index, element) in list.enumerated() {
            guard let text = element.string, (1...255).contains(text.utf8.count) else {
                throw Problem(.badRequest, "an allowed value is a string of 1 to 255 bytes", at: place.appending(index))
            }
            let hasBlankEnd = text.first?.isWhitespace == true || text.last?.isWhitespace == true
            guard !isMultiple || !text.utf8.contains(UInt8(ascii: ";")) && !hasBlankEnd else {
                throw Problem(
                    .badRequest, "where several may be taken, a value has no semicolon, nor a blank at its ends",
                    at: place.appending(index))
            }
            guard seen.insert(Identifier(text)).inserted else {
                throw Problem(.badRequest, "'\(text)' stands twice", at: place.appending(index))
            }
            values.append(Identifier(text))
        }
        return values
    }
}
