public import Bucketing
public import JSON
public import Storage

/// Collects everything that is wrong with an input, so that an error can list it all.
struct FaultCollector {
    private(set) var faults: [JSONFault] = []

    mutating func add(_ reason: String, at place: JSONPointer) {
        faults.append(JSONFault(pointer: place, reason: reason))
    }

    /// Reads a value; an error becomes a fault.
    mutating func collect<Value>(_ read: @autoclosure () throws(CoreError) -> Value?) -> Value? {
        do throws(CoreError) {
            return try read()
        } catch {
            if error.faults.isEmpty { add(error.detail, at: error.pointer ?? []) } else { faults += error.faults }
            return nil
        }
    }

    /// Returns the value as an object; each member that is neither known nor to be ignored is a fault.
    mutating func object(
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

    /// Returns the elements of a member that is an array, with their places; `nil` if it is absent or null.
    mutating func list(_ object: JSONObject, _ name: String, _ counts: ClosedRange<Int>, at place: JSONPointer)
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

    /// Returns a text with a maximum number of bytes; empty for null, which removes it; `nil` if it is absent.
    mutating func text(_ object: JSONObject, _ name: String, atMost limit: Int) -> String? {
        guard let value = object[name] else { return nil }
        guard let text = collect(try object.optionalText(name)) else { return value.isNull ? "" : nil }
        if text.utf8.count > limit {
            add("`\(name)` must have at most \(limit) bytes; got \(text.utf8.count)", at: JSONPointer().appending(name))
        }
        return text
    }

    /// Returns the member `tags`; `nil` if it is absent or null.
    mutating func tags(_ object: JSONObject) -> [String]? {
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

    /// - Throws: 422 if anything was wrong.
    func check() throws(CoreError) {
        if let error = CoreError(faults: faults, "nothing was stored") { throw error }
    }
}

// MARK: - Segments

extension AttributeSchema {
    /// Returns the names of segments that an audience refers to and that are not defined, sorted.
    public func undefinedSegments(in audience: JSONValue) -> [Identifier] {
        Mentions(audience: audience).segments.filter { segments[$0] == nil }.sorted()
    }
}

extension FaultCollector {
    /// Adds a fault for each segment of an audience that is not defined: it is most likely misspelt, and would admit nobody.
    mutating func checkSegments(of audience: JSONValue?, _ schema: AttributeSchema, at place: JSONPointer) {
        guard let audience else { return }
        for name in schema.undefinedSegments(in: audience) {
            add(schema.unknownSegment(name), at: place.appending("audience"))
        }
    }
}

// MARK: - Conditions that nobody meets

extension ExperimentChange {
    /// The conditions of the audience that no user can meet whose attributes are as they are defined.
    public func warnings(_ schema: AttributeSchema, _ datafile: Datafile) -> [JSONFault] {
        guard let audience, !audience.isNull else { return [] }
        return SegmentRules.warnings(
            in: audience, at: ["audience"], schema: schema, attributes: datafile.attributes.map(\.key))
    }
}

extension FlagChange {
    /// The conditions of audiences that no user can meet whose attributes are as they are defined.
    public func warnings(_ schema: AttributeSchema, _ datafile: Datafile) -> [JSONFault] {
        (rules ?? []).enumerated().flatMap { index, rule -> [JSONFault] in
            guard let audience = rule.audience else { return [] }
            let place = JSONPointer().appending("rules").appending(index).appending("audience")
            return SegmentRules.warnings(
                in: audience, at: place, schema: schema, attributes: datafile.attributes.map(\.key))
        }
    }
}

extension ExperimentChange {
    /// - Throws: 422 with every segment that is not defined.
    public func checkSegments(_ schema: AttributeSchema) throws(CoreError) {
        var faults = FaultCollector()
        faults.checkSegments(of: audience, schema, at: [])
        try faults.check()
    }
}

extension FlagChange {
    /// - Throws: 422 with every segment that is not defined.
    public func checkSegments(_ schema: AttributeSchema) throws(CoreError) {
        var faults = FaultCollector()
        for (index, rule) in (rules ?? []).enumerated() {
            faults.checkSegments(of: rule.audience, schema, at: JSONPointer().appending("rules").appending(index))
        }
        try faults.check()
    }
}
