public import Bucketing
import Chronology
public import JSON

/// The type of a stored attribute's values.
public enum AttributeType: String, Sendable, CaseIterable {
    /// UTF-8 of up to ``AttributeDefinition/longestText`` bytes.
    case string
    case number
    case boolean
    /// ISO 3166-1 alpha-2 in lower case.
    case country
    /// `yyyy-mm-dd`
    case date
    /// `HH:MM` on the 24-hour clock, without a time zone.
    case time
    /// RFC 3339, kept in UTC.
    case timestamp
    /// One of the values that the definition allows, or several; see ``AttributeDefinition/isMultiple``.
    case selection
}

/// The definition of one attribute in the schema that admins maintain.
public struct AttributeDefinition: Sendable, Equatable {
    /// 1 to 255 bytes.
    public let name: Identifier
    /// Identifies the attribute in records. Never reused, even after the attribute is deleted.
    public let number: UInt32
    public let type: AttributeType
    /// The distinct values that a selection allows; empty for all other types.
    public let allowedValues: [Identifier]
    /// Whether a user may have several of the allowed values at once.
    public let isMultiple: Bool
    /// The index of each allowed value.
    private let indices: [Identifier: Int]

    /// The maximum length of a `string` value, in bytes of UTF-8.
    public static let longestText = 1_024
    /// The maximum number of values that a selection allows, and that one request may set.
    public static let mostValues = 1_000

    public init(
        name: Identifier, number: UInt32, type: AttributeType, allowedValues: [Identifier] = [],
        isMultiple: Bool = false
    ) {
        self.name = name
        self.number = number
        self.type = type
        self.allowedValues = allowedValues
        self.isMultiple = isMultiple
        indices = Dictionary(allowedValues.enumerated().map { ($1, $0) }, uniquingKeysWith: { first, _ in first })
    }
}

extension AttributeDefinition {
    /// Validates a value from a request, and normalizes the value to the form that is stored and compared.
    ///
    /// - Throws: ``AttributeRefusal`` with the values that the attribute accepts.
    public func value(_ json: JSONValue) throws(AttributeRefusal) -> AttributeValue {
        switch type {
        case .string: .text(try text(json))
        case .number: .number(try number(json))
        case .boolean: .bool(try boolean(json))
        case .country: .text(try country(json))
        case .date: .moment(try date(json))
        case .time: .moment(try time(json))
        case .timestamp: .moment(try timestamp(json))
        case .selection: .selection(try selection(json))
        }
    }

    /// Returns the string of a value.
    ///
    /// - Parameter wanted: the requirement, for the error message.
    private func string(_ json: JSONValue, _ wanted: @autoclosure () -> String) throws(AttributeRefusal) -> String {
        guard let text = json.string else { throw AttributeRefusal("\(wanted()); got \(json.kind)") }
        return text
    }

    private func text(_ json: JSONValue) throws(AttributeRefusal) -> Identifier {
        var wanted: String { "`\(name)` must be a string of at most \(Self.longestText) bytes" }
        let text = try string(json, wanted)
        guard text.utf8.count <= Self.longestText else {
            throw AttributeRefusal("\(wanted); got \(text.utf8.count) bytes")
        }
        return Identifier(text)
    }

    private func number(_ json: JSONValue) throws(AttributeRefusal) -> Double {
        guard let number = json.double, number.isFinite else {
            throw AttributeRefusal("`\(name)` must be a number; got \(json.kind)")
        }
        // As a `Double`, a greater integer would lose precision, and the API would return another number.
        if case .integer(let integer) = json, integer.magnitude > 1 << 53 {
            throw AttributeRefusal("`\(name)` must be from -2^53 to 2^53 as a whole number; got \(integer)")
        }
        // Negative zero becomes zero, so that equal numbers have the same bytes in a record.
        return number == 0 ? 0 : number
    }

    private func boolean(_ json: JSONValue) throws(AttributeRefusal) -> Bool {
        guard let bool = json.bool else { throw AttributeRefusal("`\(name)` must be true or false; got \(json.kind)") }
        return bool
    }

    private func country(_ json: JSONValue) throws(AttributeRefusal) -> Identifier {
        var wanted: String { "`\(name)` must be an ISO 3166-1 alpha-2 country in lower case, such as 'de'" }
        let text = try string(json, wanted)
        guard CountryCode.isAssigned(text) else { throw AttributeRefusal("\(wanted); got \(Self.quoted(text))") }
        return Identifier(text)
    }

    private func date(_ json: JSONValue) throws(AttributeRefusal) -> Identifier {
        var wanted: String { "`\(name)` must be a date as yyyy-mm-dd" }
        let text = try string(json, wanted)
        guard let date = CalendarDate(text.utf8) else { throw AttributeRefusal("\(wanted); got \(Self.quoted(text))") }
        return Identifier(date.description)
    }

    private func time(_ json: JSONValue) throws(AttributeRefusal) -> Identifier {
        var wanted: String { "`\(name)` must be a time from 00:00 to 23:59 as HH:MM" }
        let text = try string(json, wanted)
        var reader = DigitReader(text.utf8)
        guard let hour = reader.number(2), hour < 24, reader.skip(":"), let minute = reader.number(2), minute < 60,
            reader.isAtEnd
        else { throw AttributeRefusal("\(wanted); got \(Self.quoted(text))") }
        return Identifier(text)
    }

    private func timestamp(_ json: JSONValue) throws(AttributeRefusal) -> Identifier {
        var wanted: String { "`\(name)` must be an RFC 3339 timestamp with an offset, such as 2026-01-31T12:00:00Z" }
        let text = try string(json, wanted)
        guard let instant = Instant(rfc3339: text) else {
            throw AttributeRefusal("\(wanted); got \(Self.quoted(text))")
        }
        return Identifier(instant.rfc3339)
    }

    /// Returns the distinct selected values, in the order in which the definition lists them.
    private func selection(_ json: JSONValue) throws(AttributeRefusal) -> [Identifier] {
        let given = try selected(json)
        guard !given.isEmpty else { throw AttributeRefusal("`\(name)` must have a value; DELETE removes an attribute") }
        var chosen: Set<Int> = []
        for value in given {
            guard let index = indices[value] else {
                // A selection may allow a thousand values. A message lists at most 20 of them.
                let list = allowedValues.prefix(20).map { Self.quoted($0.string) }.joined(separator: ", ")
                let more = allowedValues.count > 20 ? ", …" : ""
                throw AttributeRefusal("`\(name)` must be one of \(list)\(more); got \(Self.quoted(value.string))")
            }
            chosen.insert(index)
        }
        return chosen.sorted().map { allowedValues[$0] }
    }

    /// Returns the selected values as the request has them, without checking that they are allowed.
    private func selected(_ json: JSONValue) throws(AttributeRefusal) -> [Identifier] {
        guard isMultiple else {
            return [Identifier(try string(json, "`\(name)` must be one of its allowed values, as a string"))]
        }
        var wanted: String { "`\(name)` must be an array of strings, or one string such as 'One; Two'" }
        guard let list = json.array else { return try Self.separated(try string(json, wanted)) }
        try Self.check(count: list.count)
        var values: [Identifier] = []
        for element in list { values.append(Identifier(try string(element, wanted))) }
        return values
    }

    /// Splits `One; Two` at its semicolons and trims the blanks around each value.
    private static func separated(_ text: String) throws(AttributeRefusal) -> [Identifier] {
        let parts = text.utf8.split(separator: UInt8(ascii: ";"))
        try check(count: parts.count)
        return parts.map { part in
            let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
            let bytes = Array(part.drop(while: isBlank).reversed().drop(while: isBlank).reversed())
            return Identifier(String(decoding: bytes, as: UTF8.self))
        }.filter { !$0.string.isEmpty }
    }

    private static func check(count: Int) throws(AttributeRefusal) {
        guard count <= mostValues else {
            throw AttributeRefusal("a selection takes at most \(mostValues) values at once; got \(count)")
        }
    }

    /// Quotes at most 64 characters of a text for an error message.
    private static func quoted(_ text: String) -> String {
        let head = text.prefix(64)
        return "'\(head)\(head.endIndex == text.endIndex ? "" : "…")'"
    }
}

/// The reason for which an attribute does not accept a value.
public struct AttributeRefusal: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// The officially assigned country codes of ISO 3166-1 alpha-2, in lower case.
private enum CountryCode {
    static func isAssigned(_ text: String) -> Bool {
        guard text.utf8.count == 2 else { return false }
        return assigned.contains(text)
    }

    private static let assigned = Set(
        """
        ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bl bm bn bo bq br bs bt bv bw by bz
        ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg eh er es et fi fj fk fm fo fr
        ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp
        ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mf mg mh mk ml mm mn mo mp mq mr ms mt
        mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw
        sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz
        ua ug um us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
        """.split(whereSeparator: \.isWhitespace).map(String.init))
}
