import CYAML
import JSON

/// A document as JSON, with the line of each of its values.
struct YAMLDocument {
    let value: JSONValue
    /// The lines of the values, by their JSON pointers.
    let lines: [String: Int]
}

/// A fault of a file, or a construct that is not supported.
struct YAMLError: Error {
    let line: Int
    let reason: String
}

/// Reads the documents of a YAML file as JSON, with the parser of libyaml.
///
/// A scalar is a number, a boolean or null only if it is valid JSON; otherwise it is a string. Unlike in YAML 1.1,
/// `no`, `on` and `1_000` are therefore strings. A key is always a string.
struct YAMLReader {
    private let parser: UnsafeMutablePointer<yaml_parser_t>
    /// The values of the document that have an anchor, which aliases repeat.
    private var anchors: [String: JSONValue] = [:]
    /// The lines of the document's values, by their JSON pointers.
    private var lines: [String: Int] = [:]
    /// The number of values that may still be read. It bounds the expansion of nested aliases.
    private var remaining = 1_000_000
    /// The maximum depth of nested values, because they are read recursively.
    private static let maximumDepth = 64

    /// Reads all documents of a file.
    static func documents(_ bytes: [UInt8]) throws(YAMLError) -> [YAMLDocument] {
        guard yaml_is_available() == 1 else {
            throw YAMLError(line: 1, reason: "YAML needs libyaml: apt-get install libyaml-0-2; JSON needs nothing")
        }
        let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
        defer { parser.deallocate() }
        guard yaml_parser_initialize(parser) == 1 else { throw YAMLError(line: 1, reason: "too little memory") }
        defer { yaml_parser_delete(parser) }
        var failure: YAMLError?
        let documents = bytes.withUnsafeBufferPointer { bytes -> [YAMLDocument] in
            yaml_parser_set_input_string(parser, bytes.baseAddress, bytes.count)
            var reader = YAMLReader(parser: parser)
            do throws(YAMLError) {
                return try reader.stream()
            } catch {
                failure = error
                return []
            }
        }
        if let failure { throw failure }
        return documents
    }

    private init(parser: UnsafeMutablePointer<yaml_parser_t>) {
        self.parser = parser
    }

    // MARK: Events

    /// An event of libyaml, which reports a document as the beginnings and ends of its values.
    private struct Event {
        enum Kind {
            case documentStart, mappingStart, sequenceStart, end, streamEnd, other
            /// A repetition of the value that has an anchor of this name.
            case alias(String)
            /// - Parameter isPlain: whether the scalar has neither quotation marks nor a tag. Any other scalar is a
            ///   string.
            case scalar(String, isPlain: Bool)
        }

        var kind: Kind
        /// The name by which later aliases repeat the value; `nil` if it has none.
        var anchor: String?
        let line: Int
    }

    /// Reads the next event.
    private func next() throws(YAMLError) -> Event {
        var event = yaml_event_t()
        guard yaml_parser_parse(parser, &event) == 1 else {
            let problem = parser.pointee.problem.map { String(cString: $0) } ?? "it cannot be read"
            throw YAMLError(line: Int(parser.pointee.problem_mark.line) + 1, reason: problem)
        }
        defer { yaml_event_delete(&event) }
        let line = Int(event.start_mark.line) + 1
        func text(_ bytes: UnsafeMutablePointer<yaml_char_t>?) -> String? { bytes.map { String(cString: $0) } }
        switch event.type {
        case YAML_STREAM_END_EVENT: return Event(kind: .streamEnd, line: line)
        case YAML_DOCUMENT_START_EVENT: return Event(kind: .documentStart, line: line)
        case YAML_MAPPING_END_EVENT, YAML_SEQUENCE_END_EVENT: return Event(kind: .end, line: line)
        case YAML_ALIAS_EVENT: return Event(kind: .alias(text(event.data.alias.anchor) ?? ""), line: line)
        case YAML_MAPPING_START_EVENT:
            try Self.expectNoTag(text(event.data.mapping_start.tag), at: line)
            return Event(kind: .mappingStart, anchor: text(event.data.mapping_start.anchor), line: line)
        case YAML_SEQUENCE_START_EVENT:
            try Self.expectNoTag(text(event.data.sequence_start.tag), at: line)
            return Event(kind: .sequenceStart, anchor: text(event.data.sequence_start.anchor), line: line)
        case YAML_SCALAR_EVENT:
            let scalar = event.data.scalar
            let bytes = UnsafeBufferPointer(start: scalar.value, count: scalar.length)
            let tag = text(scalar.tag)
            if let tag, tag != "!", tag != Self.stringTag { try Self.expectNoTag(tag, at: line) }
            let isPlain = scalar.style == YAML_PLAIN_SCALAR_STYLE && tag == nil
            return Event(
                kind: .scalar(String(decoding: bytes, as: UTF8.self), isPlain: isPlain), anchor: text(scalar.anchor),
                line: line)
        default: return Event(kind: .other, line: line)
        }
    }

    /// The tag `!!str`.
    private static let stringTag = "tag:yaml.org,2002:str"

    /// Refuses a tag, which would change the type of a value.
    private static func expectNoTag(_ tag: String?, at line: Int) throws(YAMLError) {
        guard let tag, tag != "!" else { return }
        throw YAMLError(line: line, reason: "a value must have no tag but !!str; got '\(tag)'")
    }

    // MARK: Values

    /// Reads all documents.
    private mutating func stream() throws(YAMLError) -> [YAMLDocument] {
        var documents: [YAMLDocument] = []
        while true {
            let event = try next()
            switch event.kind {
            case .streamEnd: return documents
            case .documentStart:
                anchors = [:]
                lines = [:]
                let value = try value(next(), at: [], depth: 0)
                documents.append(YAMLDocument(value: value, lines: lines))
            default: continue
            }
        }
    }

    /// Reads the value that begins with an event.
    private mutating func value(_ event: Event, at place: JSONPointer, depth: Int) throws(YAMLError) -> JSONValue {
        guard depth <= Self.maximumDepth else {
            throw YAMLError(line: event.line, reason: "values must be nested at most \(Self.maximumDepth) deep")
        }
        try count(1, at: event.line)
        lines[place.string] = event.line
        let value: JSONValue
        switch event.kind {
        case .alias(let name):
            guard let known = anchors[name] else {
                throw YAMLError(line: event.line, reason: "no value before has the anchor '\(name)'")
            }
            try count(known.size, at: event.line)
            return known
        case .scalar(let text, let isPlain): value = isPlain ? Self.plain(text) : .string(text)
        case .sequenceStart: value = try sequence(at: place, depth: depth)
        case .mappingStart: value = try mapping(at: place, depth: depth)
        default: throw YAMLError(line: event.line, reason: "a value is required")
        }
        if let anchor = event.anchor { anchors[anchor] = value }
        return value
    }

    /// Counts values, which an alias may repeat.
    private mutating func count(_ values: Int, at line: Int) throws(YAMLError) {
        remaining -= values
        guard remaining >= 0 else { throw YAMLError(line: line, reason: "a file must have at most 1000000 values") }
    }

    /// Reads the elements of a sequence up to its end.
    private mutating func sequence(at place: JSONPointer, depth: Int) throws(YAMLError) -> JSONValue {
        var elements: [JSONValue] = []
        while true {
            let event = try next()
            if case .end = event.kind { return .array(elements) }
            elements.append(try value(event, at: place.appending(elements.count), depth: depth + 1))
        }
    }

    /// Reads the members of a mapping up to its end. Unlike in YAML, a key must occur once.
    private mutating func mapping(at place: JSONPointer, depth: Int) throws(YAMLError) -> JSONValue {
        var object = JSONObject()
        while true {
            let event = try next()
            if case .end = event.kind { return .object(object) }
            guard case .scalar(let key, _) = event.kind else {
                throw YAMLError(line: event.line, reason: "a key must be a string")
            }
            guard key != "<<" else { throw YAMLError(line: event.line, reason: "merge keys (<<) are not supported") }
            let place = place.appending(key)
            if object[key] != nil {
                let first = lines[place.string].map { " in line \($0)" } ?? ""
                throw YAMLError(line: event.line, reason: "a key must occur once; '\(key)' is there already\(first)")
            }
            object[key] = try value(try next(), at: place, depth: depth + 1)
        }
    }

    /// Returns the value of a scalar without quotation marks.
    static func plain(_ text: String) -> JSONValue {
        switch text {
        case "", "~", "null": return .null
        case "true": return true
        case "false": return false
        default:
            guard let first = text.utf8.first, first == UInt8(ascii: "-") || (0x30...0x39).contains(first),
                let value = try? JSONParser().parse(text), value.double != nil
            else { return .string(text) }
            return value
        }
    }
}

extension JSONValue {
    /// The number of values, including nested ones.
    fileprivate var size: Int {
        switch self {
        case .array(let elements): elements.reduce(1) { $0 + $1.size }
        case .object(let object): object.reduce(1) { $0 + $1.value.size }
        default: 1
        }
    }
}

// MARK: - Comments

extension YAMLReader {
    /// Returns the number of the first line with a comment outside of quotation marks; `nil` if there is none.
    static func firstComment(in text: String) -> Int? {
        // The quotation mark of the open string, which may span lines.
        var quote: Character?
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            var last: Character = " "
            var isEscaped = false
            for character in line {
                // A `#` begins a comment only after white space, and a quotation mark opens a string only at the
                // beginning of a value.
                if let open = quote {
                    if isEscaped {
                        isEscaped = false
                    } else if open == "\"", character == "\\" {
                        isEscaped = true
                    } else if character == open {
                        quote = nil
                    }
                } else if character == "#", last.isWhitespace {
                    return index + 1
                } else if character == "\"" || character == "'", last.isWhitespace || "[{,:".contains(last) {
                    quote = character
                }
                last = character
            }
        }
        return nil
    }
}
