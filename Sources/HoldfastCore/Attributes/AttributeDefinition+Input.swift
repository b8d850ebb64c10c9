public import Bucketing
public import JSON
public import Storage

extension AttributeDefinition {
    /// `{"type":"number"}`, or `{"type":"selection","values":["One","Two"],"multiple":true}`.
    public init(_ body: JSONValue, name: Identifier) throws(HoldfastError) {
        let object = try body.object("an attribute", knowing: ["name", "type", "values", "multiple"])
        if let given = try object.optionalText("name"), !given.utf8.elementsEqual(name.string.utf8) {
            throw HoldfastError(.invalid, "`name` must be the name in the path, '\(name)'; got '\(given)'", at: ["name"])
        }
        let given = try object.text("type")
        guard let type = AttributeType(rawValue: given) else {
            let types = AttributeType.allCases.map(\.rawValue).joined(separator: ", ")
            throw HoldfastError(.invalid, "`type` must be one of \(types); got '\(given)'", at: ["type"])
        }
        guard type == .selection else {
            for key in ["values", "multiple"] where object[key] != nil {
                throw HoldfastError(.invalid, "`\(key)` requires the type selection; got \(type)", at: JSONPointer().appending(key))
            }
            self.init(name: name, number: 0, type: type)
            return
        }
        let multiple = object["multiple"] ?? false
        guard let isMultiple = multiple.bool else {
            throw HoldfastError(.invalid, "`multiple` must be true or false; got \(multiple.kind)", at: ["multiple"])
        }
        let values = try Self.allowedValues(object["values"], isMultiple)
        self.init(name: name, number: 0, type: type, allowedValues: values, isMultiple: isMultiple)
    }

    private static func allowedValues(_ value: JSONValue?, _ isMultiple: Bool) throws(HoldfastError) -> [Identifier] {
        let place: JSONPointer = ["values"]
        guard let list = value?.array, (1...mostValues).contains(list.count) else {
            let found = value?.array.map { "\($0.count) elements" } ?? value?.kind ?? "nothing"
            throw HoldfastError(.invalid, "`values` must be an array of 1 to \(mostValues) strings; got \(found)", at: place)
        }
        var values: [Identifier] = []
        var seen: Set<Identifier> = []
        for (index, element) in list.enumerated() {
            guard let text = element.string, (1...255).contains(text.utf8.count) else {
                let found = element.string.map { "\($0.utf8.count) bytes" } ?? element.kind
                throw HoldfastError(
                    .invalid, "an allowed value must be a string of 1 to 255 bytes; got \(found)",
                    at: place.appending(index))
            }
            let hasBlankEnd = text.first?.isWhitespace == true || text.last?.isWhitespace == true
            guard !isMultiple || !text.utf8.contains(UInt8(ascii: ";")) && !hasBlankEnd else {
                throw HoldfastError(
                    .invalid, "with `multiple`, a value must not contain a semicolon or begin or end with a blank; got '\(text)'",
                    at: place.appending(index))
            }
            guard seen.insert(Identifier(text)).inserted else {
                throw HoldfastError(.invalid, "the values must differ; got '\(text)' twice", at: place.appending(index))
            }
            values.append(Identifier(text))
        }
        return values
    }
}
