import Definitions
import JSON

/// Parses an `experiment_bucket_map` in the syntax of CQL, Cassandra's query language. The values of the map may have
/// one of three types:
/// - map: `{'77': {'variation_id': 'b'}}`
/// - user-defined type: `{'77': {variation_id: 'b'}}`
/// - text: `{'77': 'b'}`
///
/// A quotation mark within a text is doubled.
enum CQLMap {
    /// Returns the map as the JSON of an `experiment_bucket_map`; `nil` if the bytes are not such a map.
    static func parse(_ bytes: [UInt8]) -> JSONValue? {
        var reader = Reader(rest: bytes[...])
        guard let map = reader.map(of: { $0.assignment() }), reader.isAtEnd else { return nil }
        return .object(map)
    }

    /// Reads the text from left to right. Each function reads one syntactic element, and returns `nil` if the rest of
    /// the text does not begin with this element.
    private struct Reader {
        /// The bytes that are not read yet.
        var rest: ArraySlice<UInt8>

        /// Whether only blanks are left.
        var isAtEnd: Bool { rest.allSatisfy { $0 == 0x20 } }

        /// Reads a map.
        ///
        /// - Parameter readValue: reads a value of the map.
        mutating func map(of readValue: (inout Reader) -> JSONValue?) -> JSONObject? {
            guard skip("{") else { return nil }
            var map = JSONObject()
            if skip("}") { return map }
            repeat {
                guard let key = name(), skip(":"), let value = readValue(&self) else { return nil }
                map[key] = value
            } while skip(",")
            return skip("}") ? map : nil
        }

        /// Reads the value of an experiment: the id of a variation, or a map with the id.
        mutating func assignment() -> JSONValue? {
            if let variationID = text() { return ["variation_id": .string(variationID)] }
            let members = map { reader in reader.text().map { .string($0) } }
            return members.map { .object($0) }
        }

        /// Reads a key of a map: a text, or the name of a field of a user-defined type, which has no quotation marks.
        private mutating func name() -> String? {
            if let text = text() { return text }
            let word = rest.prefix { $0 == UInt8(ascii: "_") || NameRule.isExperimentID(CollectionOfOne($0)) }
            guard !word.isEmpty else { return nil }
            rest = rest[word.endIndex...]
            return String(decoding: word, as: UTF8.self)
        }

        /// Reads a text in quotation marks.
        private mutating func text() -> String? {
            let quote = UInt8(ascii: "'")
            while rest.first == 0x20 { rest = rest.dropFirst() }
            guard rest.first == quote else { return nil }
            var text: [UInt8] = []
            var index = rest.startIndex + 1
            while index < rest.endIndex {
                if rest[index] != quote {
                    text.append(rest[index])
                } else if index + 1 < rest.endIndex, rest[index + 1] == quote {
                    text.append(quote)
                    index += 1
                } else {
                    rest = rest[(index + 1)...]
                    return String(validating: text, as: UTF8.self)
                }
                index += 1
            }
            return nil
        }

        /// Reads a character after any blanks.
        ///
        /// - Returns: whether the character was there.
        private mutating func skip(_ character: Unicode.Scalar) -> Bool {
            while rest.first == 0x20 { rest = rest.dropFirst() }
            guard rest.first == UInt8(ascii: character) else { return false }
            rest = rest.dropFirst()
            return true
        }
    }
}
