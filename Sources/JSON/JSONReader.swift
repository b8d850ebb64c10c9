/// Reads one JSON text in a single pass, by recursive descent: a method for each element of the grammar. Each method
/// reads from ``position`` on and advances it.
///
/// Errors carry the byte offset at once. The pointer to the innermost value is assembled while the error passes through
/// the enclosing arrays and objects. ``JSONParser`` adds the line.
struct JSONReader {
    let bytes: UnsafeRawBufferPointer
    let maximumDepth: Int
    let duplicateKeys: JSONParser.DuplicateKeys
    /// The index of the next byte.
    var position = 0
    private var depth = 0

    init(bytes: UnsafeRawBufferPointer, maximumDepth: Int, duplicateKeys: JSONParser.DuplicateKeys) {
        self.bytes = bytes
        self.maximumDepth = maximumDepth
        self.duplicateKeys = duplicateKeys
    }

    mutating func document() throws(JSONError) -> JSONValue {
        skipWhitespace()
        let value = try value()
        skipWhitespace()
        guard position == bytes.count else { throw failure("expected nothing after the value") }
        return value
    }

    /// The byte at `position`; 0 at the end of the text. The two cannot be confused, because no JSON text contains an
    /// unescaped NUL.
    var current: UInt8 {
        position < bytes.count ? bytes[position] : 0
    }

    func failure(_ message: String) -> JSONError {
        JSONError(position < bytes.count ? message : "\(message), got the end of the text", offset: position)
    }

    mutating func skipWhitespace() {
        while position < bytes.count {
            switch bytes[position] {
            case UInt8(ascii: " "), UInt8(ascii: "\n"), UInt8(ascii: "\r"), UInt8(ascii: "\t"): position += 1
            default: return
            }
        }
    }

    mutating func value() throws(JSONError) -> JSONValue {
        switch current {
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "{"): return .object(try object())
        case UInt8(ascii: "["): return .array(try array())
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
        case UInt8(ascii: "t"): return try literal("true", .bool(true))
        case UInt8(ascii: "f"): return try literal("false", .bool(false))
        case UInt8(ascii: "n"): return try literal("null", .null)
        default: throw failure("expected a value")
        }
    }

    private mutating func literal(_ text: StaticString, _ value: JSONValue) throws(JSONError) -> JSONValue {
        let end = position + text.utf8CodeUnitCount
        guard end <= bytes.count, text.withUTF8Buffer({ bytes[position..<end].elementsEqual($0) }) else {
            throw failure("expected \(text)")
        }
        position = end
        return value
    }

    /// Reads the opening bracket of an array or object.
    private mutating func enter() throws(JSONError) {
        guard depth < maximumDepth else { throw failure("expected at most \(maximumDepth) levels of nesting") }
        depth += 1
        position += 1
        skipWhitespace()
    }

    /// Reads the closing bracket if it is next.
    private mutating func leave(_ closing: UInt8) -> Bool {
        guard current == closing else { return false }
        depth -= 1
        position += 1
        return true
    }

    /// Reads the comma or closing bracket after an element.
    ///
    /// - Returns: whether the array or object ends.
    private mutating func endsAfterElement(_ closing: UInt8) throws(JSONError) -> Bool {
        skipWhitespace()
        if leave(closing) { return true }
        guard current == UInt8(ascii: ",") else { throw failure("expected a comma or the closing bracket") }
        position += 1
        skipWhitespace()
        return false
    }
}

// MARK: - Arrays and objects

extension JSONReader {
    private mutating func array() throws(JSONError) -> [JSONValue] {
        try enter()
        var elements: [JSONValue] = []
        if leave(UInt8(ascii: "]")) { return elements }
        repeat {
            do {
                elements.append(try value())
            } catch {
                throw error.inside(elements.count)
            }
        } while try !endsAfterElement(UInt8(ascii: "]"))
        return elements
    }

    private mutating func object() throws(JSONError) -> JSONObject {
        try enter()
        var object = JSONObject()
        if leave(UInt8(ascii: "}")) { return object }
        repeat {
            let keyPosition = position
            let key = try key()
            let former = object.index(of: key)
            if former != nil, duplicateKeys == .refused {
                throw JSONError("expected a key that occurs once", offset: keyPosition).inside(key)
            }
            do {
                object.set(key, try value(), at: former)
            } catch {
                throw error.inside(key)
            }
        } while try !endsAfterElement(UInt8(ascii: "}"))
        return object
    }

    /// Reads a key and the colon after it.
    private mutating func key() throws(JSONError) -> String {
        guard current == UInt8(ascii: "\"") else { throw failure("expected a key in double quotes") }
        let key = try string()
        skipWhitespace()
        guard current == UInt8(ascii: ":") else { throw failure("expected a colon after the key") }
        position += 1
        skipWhitespace()
        return key
    }
}

// MARK: - Numbers

extension JSONReader {
    /// Reads an ``JSONValue/integer(_:)`` if the number has neither fraction nor exponent and fits 64 bits, else a
    /// ``JSONValue/number(_:)``.
    mutating func number() throws(JSONError) -> JSONValue {
        let start = position
        let isNegative = current == UInt8(ascii: "-")
        if isNegative { position += 1 }
        var isWhole = true
        let firstDigit = position
        let negated = try negatedDigits()
        if position - firstDigit > 1, bytes[firstDigit] == UInt8(ascii: "0") {
            throw JSONError("expected a number without leading zeros", offset: firstDigit)
        }
        if current == UInt8(ascii: ".") {
            isWhole = false
            position += 1
            _ = try negatedDigits()
        }
        if current == UInt8(ascii: "e") || current == UInt8(ascii: "E") {
            isWhole = false
            position += 1
            if current == UInt8(ascii: "+") || current == UInt8(ascii: "-") { position += 1 }
            _ = try negatedDigits()
        }
        // `.min` without a minus sign is the number 2^63, which is too large for `Int64`.
        if isWhole, let negated, isNegative || negated > .min {
            return .integer(isNegative ? negated : -negated)
        }
        return .number(try double(from: start))
    }

    /// Reads at least one digit.
    ///
    /// - Returns: the negated value, because the range of `Int64` has one more negative number: -2^63 would overflow if
    ///   its digits were read as a positive number. `nil` if the value does not fit 64 bits.
    private mutating func negatedDigits() throws(JSONError) -> Int64? {
        let start = position
        var value: Int64? = 0
        while case let byte = current, byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") {
            if let former = value {
                let (tens, tensOverflow) = former.multipliedReportingOverflow(by: 10)
                let (sum, sumOverflow) = tens.subtractingReportingOverflow(Int64(byte - UInt8(ascii: "0")))
                value = tensOverflow || sumOverflow ? nil : sum
            }
            position += 1
        }
        guard position > start else { throw failure("expected a digit") }
        return value
    }

    private func double(from start: Int) throws(JSONError) -> Double {
        let text = String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<position]), as: UTF8.self)
        guard let value = Double(text), value.isFinite else {
            throw JSONError("expected a number that a double can hold", offset: start)
        }
        return value
    }
}
