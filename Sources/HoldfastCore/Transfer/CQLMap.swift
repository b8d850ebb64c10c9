import Definitions
import JSON

/// Parses a map of experiments as CQL, Cassandra's query language, writes it. Its form depends on the type of the
/// values:
/// - a map: `{'77': {'variation_id': 'b'}}`
/// - a user-defined type: `{'77': {variation_id: 'b'}}`
/// - a text: `{'77': 'b'}`
///
/// A quotation mark within a text is doubled.
enum CQLMap {
    /// Returns the map as the JSON of an `experiment_bucket_map`; `nil` if the text is no such map.
    static func parse(_ bytes: [UInt8]) -> JSONValue? {
        var reader = Reader(rest: bytes[...])
        guard let map = reader.map(of: { $0.assignment() }), reader.isAtEnd else { return nil }
        return .object(map)
    }

    /// Reads the text from left to right. Each function returns `nil` if the rest does not begin with what it reads.
    private struct Reader {
        /// The bytes that are not read yet.
        var rest: ArraySlice<UInt8>

        /// Whether only blanks are left.
        var isAtEnd: Bool { rest.allSatisfy { $0 == 0x20 } }

        /// Reads a map whose values a function reads.
        mutating func map(of value: (inout Reader) -> JSONValue?) -> JSONObject? {
            guard skip("{") else { return nil }
            var map = JSONObject()
            if skip("}") { return map }
            repeat {
                guard let key = name(), skip(":"), let value = value(&self) else { return nil }
                map[key] = value
            } while skip(",")
            return skip("}") ? map : nil
        }

        /// Reads the value of an experiment: the id of a variation, or a map with it.
        mutating func assignment() -> JSONValue? {
            if let variationID = text() { return .object(Self.assignment(variationID)) }
            let members = map { reader in reader.text().map { .string($0) } }
            return members.map { .object($0) }
        }

        private static func assignment(_ variationID: String) -> JSONObject {
            var object = JSONObject()
            object["variation_id"] = .string(variationID)
            return object
        }

        /// Reads a key of a map: a text, or a name without quotation marks.
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
