/// One pass over the bytes of a JSON text. `position` is the next byte to be read.
struct JSONReader {
    let bytes: UnsafeRawBufferPointer
    let maximumDepth: Int
    let duplicateKeys: JSONParser.DuplicateKeys
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

    /// The byte at `position`; 0, which no JSON text contains outside of its end, when all are read.
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

    /// Reads the closing bracket, if it is next.
    private mutating func leave(_ closing: UInt8) -> Bool {
        guard current == closing else { return false }
        depth -= 1
        position += 1
        return true
    }

    /// Reads what stands after an element; whether the array or object ends there.
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
