public import Bucketing
public import JSON

/// A member of an object that is being read. Its value is null only if the ``Member/Traits`` say that null is read like
/// any other value.
public struct GivenMember {
    public let object: JSONObject
    public let name: String
    public let value: JSONValue
    /// The location of the object.
    public let owner: JSONPointer

    public var place: JSONPointer { owner.appending(name) }
}

/// The JSON form of a value: its schema, how it is read and checked, and how it is written.
///
/// A ``Member`` gives a property of an element a name and a form, for example `Member("share", \.share,
/// .number(0...100))`. A ``MemberTable`` lists the members of an element.
public struct Form<Value: Sendable>: Sendable {
    /// The OpenAPI schema of a value in a request, if it is not null.
    let schema: JSONValue
    /// The OpenAPI schema of a value in the response to `GET`, if it is not null.
    let shownSchema: JSONValue
    /// Whether responses may show null.
    var isNullable = false
    /// Reads a member of a request. If it is wrong, adds faults and returns `nil`.
    let read: @Sendable (GivenMember, inout FaultCollector) -> Value?
    /// Returns the JSON that `GET` shows and that is stored; `nil` if the member is left out.
    let write: @Sendable (Value) -> JSONValue?
    /// Returns the JSON for a file of definitions; `nil` if the member is left out.
    let file: @Sendable (Value) -> JSONValue?
    /// Reads a stored value. Current limits need not hold, since the value may have been stored before they existed.
    /// `nil` if the JSON has the wrong type.
    let stored: @Sendable (JSONValue) -> Value?

    /// - Parameters:
    ///   - schema: null if the schema is written in `openapi.json` only.
    ///   - shown: the schema in the response to `GET`; `nil` if it is the same as in requests.
    ///   - file: `nil` to write the same JSON to files as `write` returns.
    ///   - stored: `nil` to read stored values with `read`, as far as it finds no fault.
    public init(
        schema: JSONValue = .null, shown: JSONValue? = nil,
        read: @escaping @Sendable (GivenMember, inout FaultCollector) -> Value?,
        write: @escaping @Sendable (Value) -> JSONValue?,
        file: (@Sendable (Value) -> JSONValue?)? = nil,
        stored: (@Sendable (JSONValue) -> Value?)? = nil
    ) {
        self.schema = schema
        shownSchema = shown ?? schema
        self.read = read
        self.write = write
        self.file = file ?? write
        self.stored =
            stored ?? { value in
                var faults = FaultCollector()
                let member = GivenMember(
                    object: JSONObject(.init(key: "", value: value)), name: "", value: value, owner: [])
                let found = read(member, &faults)
                return faults.faults.isEmpty ? found : nil
            }
    }

    /// Returns a form with which files leave out one value, such as a default.
    public func omitted(if omitted: Value) -> Self where Value: Equatable {
        Form(
            schema: schema, shown: shownSchema, read: read, write: write, file: { $0 == omitted ? nil : file($0) },
            stored: stored)
    }

    /// Returns a form of an optional value: `nil` is written as null, and left out of files.
    public func optional() -> Form<Value?> {
        var form = Form<Value?>(
            schema: schema, shown: shownSchema, read: { read($0, &$1) }, write: { $0.flatMap { write($0) } ?? .null },
            file: { $0.flatMap { file($0) } }, stored: { stored($0) })
        form.isNullable = true
        return form
    }
}

// MARK: - Numbers, texts and choices

extension Form where Value == Double {
    /// A number in a range. The error message names the bounds as whole numbers.
    public static func number(_ range: ClosedRange<Double>) -> Self {
        Form(
            schema: ["type": "number", "minimum": .shortest(range.lowerBound), "maximum": .shortest(range.upperBound)],
            read: { $1.number($0, range) }, write: { .shortest($0) }, stored: { $0.double })
    }

    /// A number in a range of any bounds.
    ///
    /// - Parameter example: a valid number, for the error message.
    public static func number(_ range: ClosedRange<Double>, suchAs example: String) -> Self {
        Form(
            schema: number(range).schema,
            read: { $1.number($0.object, $0.name, range, example, in: $0.owner) }, write: { .shortest($0) },
            stored: { $0.double })
    }
}

extension Form where Value == String {
    /// A text of a limited number of bytes. Null makes it empty, and files leave out an empty text.
    public static func text(atMost limit: Int) -> Self {
        Form(
            schema: ["type": "string", "maxLength": .integer(Int64(limit))],
            read: { $1.text($0.object, $0.name, atMost: limit, in: $0.owner) }, write: { .string($0) },
            file: { $0.isEmpty ? JSONValue?.none : .string($0) }, stored: \.string)
    }

    /// A key of 1 to 255 bytes without NUL.
    public static var key: Self {
        Form(
            schema: ["type": "string", "maxLength": 255], shown: ["type": "string"], read: { $1.key($0) },
            write: { .string($0) })
    }
}

extension Form where Value == Bool {
    public static var bool: Self {
        Form(schema: ["type": "boolean"], read: { $1.bool($0) }, write: { .bool($0) })
    }
}

extension Form where Value: RawRepresentable<String> & CaseIterable {
    /// The raw value of a case.
    public static func choice() -> Self {
        Form(
            schema: ["type": "string", "enum": .array(Value.allCases.map { .string($0.rawValue) })],
            read: { $1.choice(Value.self, $0.object, $0.name, at: $0.owner) }, write: { .string($0.rawValue) })
    }
}

// MARK: - The status of an experiment or a holdout

extension Form where Value == ExperimentStatus {
    /// One of some statuses, in upper or lower case.
    public static func status(_ allowed: [ExperimentStatus]) -> Self {
        Form(
            schema: statusSchema(allowed), read: { $1.status($0, among: allowed) }, write: { .string($0.name) })
    }
}

extension Form where Value == String {
    /// The status of an experiment as it is written in a datafile. Requests must name one of ``ExperimentStatus``; a
    /// datafile may have others.
    public static var status: Self {
        let allowed = ExperimentStatus.allCases
        return Form(
            schema: statusSchema(allowed), shown: ["type": "string"],
            read: { $1.status($0, among: allowed)?.rawValue }, write: { .string(ExperimentStatus.name(of: $0)) })
    }
}

private func statusSchema(_ allowed: [ExperimentStatus]) -> JSONValue {
    ["type": "string", "enum": .array(allowed.map { .string($0.name) })]
}

// MARK: - Lists and audiences

extension Form where Value == [Identifier] {
    /// Up to 100 different labels.
    public static var tags: Self {
        Form(
            schema: [
                "type": "array", "maxItems": 100, "items": ["type": "string", "minLength": 1, "maxLength": 255],
            ],
            read: { given, faults in faults.tags(given.object)?.map { Identifier($0) } },
            write: { JSONValue($0) },
            stored: { storedIdentifiers($0) })
    }

    /// An array of different keys, such as keys of flags.
    public static func keys(_ counts: ClosedRange<Int>, of noun: String) -> Self {
        Form(
            schema: [
                "type": "array", "minItems": .integer(Int64(counts.lowerBound)),
                "maxItems": .integer(Int64(counts.upperBound)), "items": ["type": "string"],
            ],
            read: { $1.keys($0, counts, of: noun) },
            write: { JSONValue($0) },
            stored: { storedIdentifiers($0) })
    }
}

/// Returns the strings of a stored array; empty if the JSON is not an array.
private func storedIdentifiers(_ value: JSONValue) -> [Identifier] {
    (value.array ?? []).compactMap { element in element.string.map { Identifier($0) } }
}

extension Form where Value == JSONValue? {
    /// Audience conditions; null admits everybody. See ``GivenAudience``.
    public static var audience: Self {
        var form = Form(
            schema: ["type": ["array", "object"], "items": [:]],
            read: { given, faults in
                for fault in AudienceRules.faults(in: given.value, at: given.place) {
                    faults.add(fault.reason, at: fault.pointer)
                }
                return given.value
            },
            write: { $0 ?? .null }, file: { $0.flatMap { $0.isNull ? JSONValue?.none : $0 } })
        form.isNullable = true
        return form
    }
}

// MARK: - Reading

extension FaultCollector {
    public mutating func text(_ given: GivenMember) -> String? {
        collect(try given.object.optionalText(given.name, in: given.owner))
    }

    public mutating func texts(_ given: GivenMember) -> [String]? {
        collect(try given.object.optionalTexts(given.name, in: given.owner))
    }

    fileprivate mutating func number(_ given: GivenMember, _ range: ClosedRange<Double>) -> Double? {
        collect(try given.object.optionalNumber(given.name, range, in: given.owner))
    }

    fileprivate mutating func bool(_ given: GivenMember) -> Bool? {
        if given.value.bool == nil {
            add("`\(given.name)` must be true or false; got \(given.value.kind)", at: given.place)
        }
        return given.value.bool
    }

    fileprivate mutating func key(_ given: GivenMember) -> String? {
        guard let text = text(given) else { return nil }
        return collect(try NameRule.checkKey(text, at: given.place))
    }

    fileprivate mutating func status(_ given: GivenMember, among allowed: [ExperimentStatus]) -> ExperimentStatus? {
        choice(given.value, given.name, among: allowed.map(\.name), at: given.place) { text in
            ExperimentStatus(name: text).flatMap { allowed.contains($0) ? $0 : nil }
        }
    }

    fileprivate mutating func keys(
        _ given: GivenMember, _ counts: ClosedRange<Int>, of noun: String
    ) -> [Identifier]? {
        guard let list = list(given.object, given.name, counts, at: given.owner) else { return nil }
        var keys: [Identifier] = []
        for (value, place) in list {
            guard let text = value.string else {
                add("a \(noun) must be named by its key; got \(value.kind)", at: place)
                continue
            }
            if keys.contains(Identifier(text)) {
                add("the \(noun)s must differ; got '\(text)' twice", at: place)
            }
            keys.append(Identifier(text))
        }
        return keys
    }
}
