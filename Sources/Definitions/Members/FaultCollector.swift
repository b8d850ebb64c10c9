public import JSON

/// Collects all faults of an input, so that one error can list them.
///
/// Each method reads one member. If the member is wrong, the method adds a fault and returns `nil`, so that reading can
/// go on with the next member. ``check()`` throws at the end.
public struct FaultCollector {
    public private(set) var faults: [JSONFault] = []

    public init() {}

    public mutating func add(_ reason: String, at place: JSONPointer) {
        faults.append(JSONFault(pointer: place, reason: reason))
    }

    /// Reads a value, and turns an error into faults.
    public mutating func collect<Value>(_ read: @autoclosure () throws(CoreError) -> Value?) -> Value? {
        do throws(CoreError) {
            return try read()
        } catch {
            if error.faults.isEmpty { add(error.detail, at: error.pointer ?? []) } else { faults += error.faults }
            return nil
        }
    }

    /// Returns the value as an object. Adds a fault for each member that is neither known nor ignored.
    ///
    /// - Returns: `nil` if the value is not an object, which is a fault.
    public mutating func object(
        _ value: JSONValue, _ name: String, knowing known: [String], ignoring shown: [String] = [],
        at place: JSONPointer
    ) -> JSONObject? {
        guard let object = value.object else {
            add("\(name) must be an object; got \(value.kind)", at: place)
            return nil
        }
        for member in object where !known.contains(member.key) && !shown.contains(member.key) {
            var single = JSONObject()
            single[member.key] = member.value
            _ = collect(try JSONValue.object(single).object(name, knowing: known, at: place))
        }
        return object
    }

    /// Returns the elements of an array member with their places; `nil` if the member is absent, null or wrong.
    public mutating func list(_ object: JSONObject, _ name: String, _ counts: ClosedRange<Int>, at place: JSONPointer)
        -> [(value: JSONValue, place: JSONPointer)]?
    {
        guard let value = object[name], !value.isNull else { return nil }
        let place = place.appending(name)
        guard let elements = value.array else {
            add("`\(name)` must be an array; got \(value.kind)", at: place)
            return nil
        }
        guard counts.contains(elements.count) else {
            add(
                "`\(name)` must have \(counts.lowerBound) to \(counts.upperBound) elements; got \(elements.count)",
                at: place)
            return nil
        }
        return elements.enumerated().map { ($0.element, place.appending($0.offset)) }
    }

    /// Reads a text with a maximum number of bytes.
    ///
    /// - Returns: the text, even if it is too long; an empty text for null, which removes the text; `nil` if the member
    ///   is absent or not a string.
    public mutating func text(
        _ object: JSONObject, _ name: String, atMost limit: Int, in place: JSONPointer = []
    ) -> String? {
        guard let value = object[name] else { return nil }
        guard let text = collect(try object.optionalText(name, in: place)) else { return value.isNull ? "" : nil }
        if text.utf8.count > limit {
            add("`\(name)` must have at most \(limit) bytes; got \(text.utf8.count)", at: place.appending(name))
        }
        return text
    }

    /// Returns the member `tags`: up to 100 different strings of 1 to 255 bytes; `nil` if it is absent, null or not an
    /// array of up to 100 elements.
    public mutating func tags(_ object: JSONObject) -> [String]? {
        guard let list = list(object, "tags", 0...100, at: []) else { return nil }
        var tags: [String] = []
        for (value, place) in list {
            guard let text = value.string else {
                add("a tag must be a string; got \(value.kind)", at: place)
                continue
            }
            guard (1...255).contains(text.utf8.count) else {
                add("a tag must be 1 to 255 bytes long; got \(text.utf8.count)", at: place)
                continue
            }
            if tags.contains(where: { $0.utf8.elementsEqual(text.utf8) }) {
                add("the tags must differ; got '\(text)' twice", at: place)
            }
            tags.append(text)
        }
        return tags
    }

    /// Returns a member that is a number in a range; `nil` if it is absent, null or wrong.
    public mutating func number(
        _ object: JSONObject, _ name: String, _ range: ClosedRange<Double>, _ example: String,
        in place: JSONPointer = []
    ) -> Double? {
        guard let value = object[name], !value.isNull else { return nil }
        guard let number = value.double, range.contains(number) else {
            let found = value.double.map { "\($0)" } ?? value.kind
            add(
                "`\(name)` must be a number from \(range.lowerBound) to \(range.upperBound), such as \(example); got "
                    + found, at: place.appending(name))
            return nil
        }
        return number
    }

    /// Returns the case that a member names by its raw value; `nil` if the member is absent, null or wrong.
    public mutating func choice<Choice: RawRepresentable<String> & CaseIterable>(
        _: Choice.Type, _ object: JSONObject, _ name: String, isRequired: Bool = false, at place: JSONPointer = []
    ) -> Choice? {
        let names = Choice.allCases.map(\.rawValue)
        let place = place.appending(name)
        guard let value = object[name], !value.isNull else {
            if isRequired { add("`\(name)` is required: one of \(names.joined(separator: ", "))", at: place) }
            return nil
        }
        return choice(value, name, among: names, at: place) { Choice(rawValue: $0) }
    }

    /// Returns the choice that a value names. If the value is none of the names, adds a fault and returns `nil`.
    mutating func choice<Choice>(
        _ value: JSONValue, _ name: String, among names: [String], at place: JSONPointer, _ find: (String) -> Choice?
    ) -> Choice? {
        let text = value.string
        if let choice = text.flatMap(find) { return choice }
        let hint = text.map { Spelling.hint(for: $0, among: names) } ?? ""
        let found = text.map { "'\($0)'" } ?? value.kind
        add("`\(name)` must be one of \(names.joined(separator: ", ")); got \(found)\(hint)", at: place)
        return nil
    }

    /// Ends the reading of an input.
    ///
    /// - Throws: 422 with all faults, if there are any.
    public func check() throws(CoreError) {
        if let error = CoreError(faults: faults, "nothing was stored") { throw error }
    }
}
